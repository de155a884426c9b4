from __future__ import annotations

import pytest
import yaml

from allranks import catalogue, library
from allranks.library import VERSION


@pytest.mark.parametrize(
    ("folder", "names"),
    [("components", catalogue.COMPONENTS), ("environments", catalogue.ENVIRONMENTS)],
)
def test_the_names_are_those_of_the_folders(folder: str, names: tuple[str, ...]) -> None:
    folders = {place.name for place in (library.root() / folder).iterdir() if any(place.glob("*.yaml"))}
    assert folders - {"clusters"} == set(names)


def test_the_pipelines_are_those_of_the_folder() -> None:
    assert {path.stem for path in (library.root() / "pipelines").glob("*.yaml")} == set(catalogue.PIPELINES)


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_a_component_is_a_folder_a_yaml_and_a_script_of_one_name(name: str) -> None:
    path = catalogue.component_files()[name]
    document = yaml.safe_load(path.read_text())
    assert document["name"] == path.parent.name == name
    assert f"{name}.py" in document["command"] or document.get("additional_includes")
    assert "component.yaml" in (path.parent / ".amlignore").read_text().split()


@pytest.mark.parametrize(
    "reference",
    [
        "train_ddp",
        "azureml:train_ddp",
        f"azureml:train_ddp:{VERSION}",
        "azureml:train_ddp@latest",
        "azureml:train_ddp@default",
        f"azureml://registries/shared-registry/components/train_ddp/versions/{VERSION}",
        "azureml://registries/shared-registry/components/train_ddp/labels/latest",
    ],
)
def test_resolve_knows_a_component_of_ours(reference: str) -> None:
    assert catalogue.resolve(reference) == catalogue.component_files()["train_ddp"]


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "train_dpp",
        "azureml:theirs:1",
        "azureml:train_ddp:9.9",
        "azureml:train_ddp@test",
        "../train_ddp",
        "./train_ddp.yaml",
        "azureml://registries/r/environments/other/versions/1",
    ],
)
def test_resolve_leaves_the_rest_to_others(reference: str) -> None:
    assert catalogue.resolve(reference) is None


@pytest.mark.parametrize(
    ("reference", "folder"),
    [
        (f"azureml:allranks-pytorch:{VERSION}", "pytorch"),
        ("azureml:allranks-pytorch@latest", "pytorch"),
        ("allranks-pytorch", "pytorch"),
        (f"azureml://registries/r/environments/allranks-pytorch/versions/{VERSION}", "pytorch"),
        ("azureml:allranks-pytorch:7", None),
        ("azureml:pytorch:1", None),
        ("pytorch", None),
        ("azureml:AzureML-acpt-pytorch-2.2-cuda12.1@latest", None),
        ("", None),
    ],
)
def test_environment_of(reference: str, folder: str) -> None:
    assert catalogue.environment_of(reference) == folder


def test_the_list_shows_what_the_whole_documents_say() -> None:
    for entry in catalogue.catalogue_entries():
        document = yaml.safe_load(entry.path.read_text())
        expected = (document.get("display_name", ""), str(document.get("version", "")))
        assert (entry.display_name, entry.version) == expected
        assert entry.description == catalogue.first_sentence(document.get("description", ""))
        if entry.kind == "component":
            assert entry.distribution == document.get("distribution", {"type": "none"})["type"]
