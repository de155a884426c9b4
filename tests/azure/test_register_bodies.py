"""Every component and pipeline is sound for the SDK, and what would be sent for it changes only on purpose."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from azure.ai.ml import load_component

from allranks import catalogue
from allranks.azure.client import AssetPlace
from allranks.azure.library_asset import LibraryAsset
from allranks.azure.register_assets import find_assets
from allranks.azure.register_copies import asset_copy
from tools import record_bodies

ROOT = Path(__file__).parents[2]
NAMES = [
    *(f"allranks-{name}" for name in catalogue.ENVIRONMENTS),
    *catalogue.COMPONENTS,
    *catalogue.PIPELINES,
]


@pytest.fixture(scope="module")
def by_name() -> dict[str, LibraryAsset]:
    return {asset.name: asset for asset in find_assets()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_sent_is_what_was_recorded(by_name: dict[str, LibraryAsset], name: str) -> None:
    file = record_bodies.record_file(by_name[name])
    before = file.read_text() if file.is_file() else ""
    now = record_bodies.body_record(by_name[name])
    diff = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=2))
    assert not diff, f"{name} would be sent differently:\n{diff}\nIf that is meant: make renew"


def test_there_is_no_record_of_what_is_no_more(by_name: dict[str, LibraryAsset]) -> None:
    assert {file.stem for file in record_bodies.FOLDER.glob("*.json")} <= by_name.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [AssetPlace("workspace", "lab"), AssetPlace("registry", "shared")], ids=lambda place: place.kind
)
def test_the_sdk_accepts_every_copy(by_name: dict[str, LibraryAsset], place: AssetPlace) -> None:
    for asset in by_name.values():
        entity = asset_copy(asset, place)
        assert (entity.name, entity.version) == (asset.name, asset.version)
        if asset.kind == "environment":
            entity.validate()
        else:
            assert entity._validate().error_messages == {}, asset.name


def test_the_sdk_accepts_every_component_as_it_is_written() -> None:
    for path in catalogue.component_files().values():
        assert load_component(path)._validate().error_messages == {}, path


def test_a_changed_text_leaves_the_files_of_an_environment_alone() -> None:
    for path in catalogue.environment_files().values():
        ignored = (path.parent / ".amlignore").read_text().split("\n")
        assert {"environment.yaml", ".amlignore", "__pycache__/"} <= set(ignored), path.parent
