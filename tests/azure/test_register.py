"""The whole library into a workspace and into a registry, against the stand-in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from allranks import catalogue
from allranks.library import VERSION
from allranks.local import snapshot
from allranks.spec import Component, Source, read_component
from tests.azure.registering import actions, changes, properties, register, sent, taken_for_library
from tests.azure.stand_in.fixture import StandIn, variables_of
from tests.azure.stand_in.state import WORKSPACE_ID

ENVIRONMENTS = [f"allranks-{name}" for name in catalogue.ENVIRONMENTS]
EVERYTHING = [*ENVIRONMENTS, *catalogue.COMPONENTS, *catalogue.PIPELINES]
PLACES = ("workspace", pytest.param("registry", marks=pytest.mark.exhaustive))

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Registered:
    """What was published in a place, by two runs of the same command."""

    kind: str
    checkout: Path
    first: dict[str, Any]
    second: dict[str, Any]
    first_log: list[dict[str, Any]]
    second_log: list[dict[str, Any]]
    state: dict[str, Any]

    @property
    def store(self) -> dict[str, Any]:
        store: dict[str, Any] = self.state[self.kind]
        return store

    def id_of(self, kind: str, name: str) -> str:
        if self.kind == "registry":
            return f"azureml://registries/shared/{kind}/{name}/versions/{VERSION}"
        # The SDK writes an environment's id with this prefix, and that of a component without it.
        prefix = "azureml:" if kind == "environments" else ""
        return f"{prefix}{WORKSPACE_ID}/{kind}/{name}/versions/{VERSION}"

    def specification(self, name: str) -> dict[str, Any]:
        specification: dict[str, Any] = properties(self.store, "components", name, VERSION)["componentSpec"]
        return specification

    def document(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load((self.checkout / f"components/{name}/component.yaml").read_text())
        return document


@pytest.fixture(scope="module", params=PLACES)
def registered(request: pytest.FixtureRequest, azure_server: StandIn, small_library: Path) -> Registered:
    place = ("--workspace",) if request.param == "workspace" else ("--registry", "shared")
    azure_server.reset()
    with variables_of(azure_server), taken_for_library(small_library):
        first = register(small_library, *place)
        first_log = azure_server.log
        azure_server.forget_log()
        second = register(small_library, *place)
    second_log, state = azure_server.log, azure_server.state
    return Registered(request.param, small_library, first, second, first_log, second_log, state)


def test_everything_is_published_once_environments_first_and_pipelines_last(registered: Registered) -> None:
    assert actions(registered.first) == dict.fromkeys(EVERYTHING, "publish")
    assert sent(registered.first_log) == [
        *(f"environments/{name}" for name in ENVIRONMENTS),
        *(f"components/{name}" for name in (*catalogue.COMPONENTS, *catalogue.PIPELINES)),
    ]
    assert registered.store["environments"].keys() == set(ENVIRONMENTS)
    assert registered.store["components"].keys() == {*catalogue.COMPONENTS, *catalogue.PIPELINES}
    assert all(list(versions) == [VERSION] for versions in registered.store["components"].values())


def test_the_second_time_nothing_is_sent(registered: Registered) -> None:
    assert actions(registered.second) == dict.fromkeys(EVERYTHING, "unchanged")
    assert changes(registered.second_log) == []


def test_every_component_has_the_environment_by_its_full_id(registered: Registered) -> None:
    for name in catalogue.COMPONENTS:
        environment = catalogue.environment_of(registered.document(name)["environment"])
        expected = registered.id_of("environments", f"allranks-{environment}")
        assert registered.specification(name)["environment"] == expected


def test_every_component_has_the_hash_and_the_files_of_its_snapshot(registered: Registered) -> None:
    for name in catalogue.COMPONENTS:
        files = snapshot.snapshot_files(read_component(registered.checkout / f"components/{name}/component.yaml"))
        parts = registered.specification(name)["code"].split("/")
        code = properties(registered.store, "codes", parts[-3], parts[-1])
        assert code["properties"]["hash_sha256"] == snapshot.content_hash(files), name
        prefix = code["codeUri"].partition(".blob.stand-in/")[2].rstrip("/") + "/"
        blobs = registered.state["blobs"].items()
        uploaded = {path.removeprefix(prefix): content for path, content in blobs if path.startswith(prefix)}
        assert uploaded == {file.path: b"".join(file.chunks()) for file in files}, name


def test_a_pipeline_names_its_children_by_their_full_ids(registered: Registered) -> None:
    assert "azureml_anonymous" not in registered.store["components"]
    for name in catalogue.PIPELINES:
        for step, node in registered.specification(name)["jobs"].items():
            component = (node.get("trial") or node)["componentId"]
            full = [registered.id_of("components", child) for child in catalogue.COMPONENTS]
            assert component in [*full, *(f"azureml:{one}" for one in full)], (name, step)


def test_what_a_pipeline_component_cannot_have_is_named(registered: Registered) -> None:
    (note,) = registered.first["notes"]
    assert "default_compute" in note
    assert "image_classification" in note


def test_an_environment_s_files_are_those_of_its_folder_but_not_its_description(registered: Registered) -> None:
    for name in catalogue.ENVIRONMENTS:
        folder = registered.checkout / "environments" / name
        build = properties(registered.store, "environments", f"allranks-{name}", VERSION)["build"]
        files = snapshot.snapshot_files(Component(name=name, source=Source(None, folder), code=folder))
        assert {"Dockerfile", "requirements.txt"} <= {file.path for file in files}
        assert "environment.yaml" not in {file.path for file in files}
        assert build["dockerfilePath"] == "Dockerfile"
        place = "/".join(build["contextUri"].rstrip("/").split("/")[-2 if registered.kind == "registry" else -3 :])
        blobs = registered.state["blobs"].items()
        uploaded = {path.partition(f"{place}/")[2]: content for path, content in blobs if place in path}
        assert uploaded == {file.path: b"".join(file.chunks()) for file in files}
