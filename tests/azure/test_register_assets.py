"""What is taken for registering, in which order, and what is refused before anybody is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks import library
from allranks.azure.client import AssetPlace
from allranks.azure.register_assets import find_assets
from allranks.azure.register_compare import asset_difference
from allranks.azure.register_copies import MARK_PROPERTY, asset_body, asset_copy
from allranks.errors import SpecError, UnknownNameError
from tests.azure.registering import copy_checkout, taken_for_library

PIPELINE = "image_classification"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the library that this process takes for the library."""
    with taken_for_library(copy_checkout(tmp_path)) as folder:
        yield folder


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert re.search(before, text), before
    file.write_text(re.sub(before, after, text, count=1))


def marks(name: str) -> dict[str, str]:
    (found,) = (asset for asset in find_assets([name]) if asset.name == name)
    return dict(found.marks)


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {part for part in before if before[part] != after[part]}


def test_names_bring_what_they_need_in_order_and_once() -> None:
    found = find_assets([PIPELINE, "evaluate", "allranks-compare", "pytorch"])
    assert [(asset.kind, asset.name) for asset in found] == [
        ("environment", "allranks-pytorch"),
        ("environment", "allranks-evaluate"),
        ("environment", "allranks-compare"),
        ("component", "prepare_data"),
        ("component", "train_ddp"),
        ("component", "evaluate"),
        ("pipeline", PIPELINE),
    ]
    with pytest.raises(UnknownNameError, match="nothing called 'train_dpp'"):
        find_assets(["train_dpp"])


def test_a_mark_changes_with_its_part_alone(checkout: Path) -> None:
    before = marks("train_ddp")
    file = checkout / "components/train_ddp/component.yaml"
    edit(file, "display_name: .*", "display_name: Another")
    assert changed(before, marks("train_ddp")) == {"words"}
    edit(file, "  epochs:\n    type: integer\n    default: 15", "  epochs:\n    type: integer\n    default: 16")
    assert changed(before, marks("train_ddp")) == {"words", "interface"}
    edit(file, "shm_size: 8g", "shm_size: 9g")
    assert changed(before, marks("train_ddp")) == {"words", "interface", "command"}
    (checkout / "shared/__init__.py").write_text("# changed\n")
    assert changed(before, marks("train_ddp")) == {"words", "interface", "command", "code"}


def test_a_raised_version_is_no_change(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = marks("compare_models"), marks("allranks-compare")
    for file in (
        checkout / "components/compare_models/component.yaml",
        checkout / "environments/compare/environment.yaml",
    ):
        file.write_text(file.read_text().replace(library.VERSION, "9.9.9"))
    monkeypatch.setattr(library, "VERSION", "9.9.9")
    assert (marks("compare_models"), marks("allranks-compare")) == before


@pytest.mark.slow
def test_a_pipeline_s_marks_follow_its_steps_and_inputs(checkout: Path) -> None:
    before = marks(PIPELINE)
    file = checkout / f"pipelines/{PIPELINE}.py"
    edit(file, "scale\\(evaluate, processes_per_node=processes_per_node\\)", "scale(evaluate, nodes=2)")
    assert changed(before, marks(PIPELINE)) == {"steps"}
    edit(file, "Machines to train on", "How many machines")
    assert changed(before, marks(PIPELINE)) == {"steps", "interface"}


def test_all_that_is_wrong_comes_at_once(checkout: Path) -> None:
    edit(checkout / "components/evaluate/component.yaml", "version: .*", 'version: "0.0.1"')
    edit(checkout / "components/train_ddp/component.yaml", "environment: .*", "environment: azureml:theirs:1")
    edit(checkout / "components/train_ddp/component.yaml", "default: 64\n    min: 1", "default: 0\n    min: 1")
    with pytest.raises(SpecError) as raised:
        find_assets([PIPELINE])
    text = str(raised.value)
    assert "evaluate/component.yaml: version: is '0.0.1'" in text
    assert "'azureml:theirs:1' is no environment of this library" in text
    assert "batch_size" in text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('train.compute = "gpu-cluster"', "jobs.train.compute: the compute 'gpu-cluster' belongs to one workspace"),
        (
            "train.component.command = 'echo'",
            "jobs.train: a step of type 'command' whose component is not in the library",
        ),
        ('prepare.inputs.data = Input(type="uri_folder", path="./here")', "lies on this machine"),
    ],
    ids=["compute", "inline", "local data"],
)
def test_what_belongs_to_one_workspace_or_has_no_name_is_refused(checkout: Path, line: str, said: str) -> None:
    edit(checkout / f"pipelines/{PIPELINE}.py", "\n    return {", f"\n    {line}\n    return {{")
    with pytest.raises(SpecError, match=re.escape(said)):
        find_assets([PIPELINE])


def test_copies_share_nothing_and_carry_the_marks() -> None:
    place = AssetPlace("registry", "shared")
    (_, asset) = find_assets(["compare_models"])
    one, other = asset_copy(asset, place), asset_copy(asset, place)
    assert one is not other
    assert one.environment == f"azureml://registries/shared/environments/allranks-compare/versions/{library.VERSION}"
    properties = asset_body(asset, place)["properties"]["properties"]
    assert {MARK_PROPERTY.format(part): mark for part, mark in asset.marks.items()}.items() <= properties.items()


def as_a_service_gives_it_back(value: Any) -> Any:
    """The same body as another service might write it: other ids, other types' case, numbers as numbers, defaults added."""
    if isinstance(value, dict):
        plain = {key: as_a_service_gives_it_back(inner) for key, inner in value.items()}
        if isinstance(plain.get("type"), str) and "command" not in plain:
            plain["type"] = plain["type"].capitalize()
        return plain | {"_source": "service", "added": None}
    if isinstance(value, list):
        return [as_a_service_gives_it_back(inner) for inner in value]
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal():
        return float(value)
    return (
        re.sub("^azureml://registries/[^/]+/", "/subscriptions/s/workspaces/w/", value)
        if isinstance(value, str)
        else value
    )


@pytest.mark.parametrize("name", ["allranks-compare", "train_ddp", "tune_image_classification"])
def test_what_a_service_rewrites_is_no_difference(name: str) -> None:
    place = AssetPlace("registry", "shared")
    asset = next(asset for asset in find_assets([name]) if asset.name == name)
    body = asset_body(asset, place)
    for part in asset.marks:
        del body["properties"]["properties"][MARK_PROPERTY.format(part)]
    unknown = "" if asset.kind == "pipeline" else "its files cannot be compared, for it was published without allranks"
    assert asset_difference(None, asset, place, as_a_service_gives_it_back(body)) == unknown
    body["properties"]["description"] = "Other"
    words = "its display name, description or tags changed"
    assert asset_difference(None, asset, place, body) == "; ".join(filter(None, (words, unknown)))
