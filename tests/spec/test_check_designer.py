"""What a user of Designer would miss, by planted mistakes; and nothing is missing from the library."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from allranks import catalogue
from allranks.cli.main import main
from allranks.spec import check_designer, read_component

GOOD = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: sample
version: "1"
display_name: Sample
description: Takes a folder and counts what is in it.
tags: {category: training}
inputs:
  data: {type: uri_folder, description: A folder.}
  rate: {type: number, default: 0.1, min: 0, description: How fast.}
  kind: {type: string, enum: [a, b], default: a, description: Which way.}
outputs:
  report: {type: uri_folder, description: The counts.}
command: python sample.py --data '${{inputs.data}}' --rate '${{inputs.rate}}' --kind '${{inputs.kind}}'
environment: azureml:some:1
"""


def problems(folder: Path, old: str = "", new: str = "") -> list[tuple[str, str, str]]:
    assert old in GOOD
    file = folder / "component.yaml"
    file.write_text(GOOD.replace(old, new) if old else GOOD)
    return [(p.where, p.severity, p.message) for p in check_designer(read_component(file))]


def test_a_good_component_lacks_nothing(tmp_path: Path) -> None:
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new", "where", "severity", "said"),
    [
        ("display_name: Sample\n", "", "display_name", "warning", "the canvas shows 'sample'"),
        ("display_name: Sample", f"display_name: {'Word ' * 9}", "display_name", "warning", "44 characters"),
        ("description: Takes a folder and counts what is in it.\n", "", "description", "warning", "no description"),
        ("tags: {category: training}\n", "", "tags", "warning", "no tags"),
        ("uri_folder, description: A folder.", "uri_folder", "inputs.data", "warning", "its name is all there is"),
        ("description: A folder.", "description: Data.", "inputs.data.description", "warning", "no more than its name"),
        ("uri_folder, description: The counts.", "uri_folder", "outputs.report", "warning", "no description"),
        ("default: 0.1, min: 0, ", "default: 0.1, ", "inputs.rate", "warning", "no range"),
        ("default: a, ", "", "inputs.kind", "warning", "choices and no default"),
        ("number, default: 0.1, min: 0", "boolean, default: true", "inputs.rate.type", "error", "text True or False"),
    ],
)
def test_a_planted_mistake_is_found(tmp_path: Path, old: str, new: str, where: str, severity: str, said: str) -> None:
    ((found, level, message),) = problems(tmp_path, old, new)
    assert (found, level) == (where, severity)
    assert said in message


def test_optional_choices_need_no_default(tmp_path: Path) -> None:
    assert problems(tmp_path, "enum: [a, b], default: a", "enum: [a, b], optional: true") == []


def test_lint_names_it_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems(tmp_path, "number, default: 0.1, min: 0", "boolean, default: true")
    assert main(["lint", str(tmp_path)]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    assert main(["lint", "--designer", str(tmp_path)]) == 2
    said = capsys.readouterr().out
    assert "component.yaml:10: inputs.rate.type: Designer passes a boolean on" in said
    assert 'Write type: string with enum: ["true", "false"].' in said


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_the_library_lacks_nothing(name: str) -> None:
    assert check_designer(read_component(catalogue.component_files()[name])) == []


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_every_component_of_the_library_is_found_by_its_tag(name: str) -> None:
    tags = yaml.safe_load(catalogue.component_files()[name].read_text())["tags"]
    assert tags["allranks"] in ("data", "training", "evaluation", "diagnosis")


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_models_of_the_library_deploy_without_code(name: str) -> None:
    component = read_component(catalogue.component_files()[name])
    kinds = {output.type for output in component.outputs.values() if "model" in output.name}
    kinds |= {port.type for port in component.inputs.values() if port.name == "model"}
    assert kinds <= {"mlflow_model"}
    assert ("mlflow_model" in kinds) == (name.startswith("train_") or name == "evaluate")


@pytest.mark.parametrize("name", catalogue.ENVIRONMENTS)
def test_images_are_pinned(name: str) -> None:
    lines = (catalogue.environment_files()[name].parent / "Dockerfile").read_text().splitlines()
    images = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert images
    for image in images:
        _, _, tag = image.partition(":")
        assert tag[-12:-4].isdigit(), f"{image} has a tag that moves; a dated one stays: 20260901.v1"
    document = yaml.safe_load(catalogue.environment_files()[name].read_text())
    assert "image" not in document, "an image that nothing is built upon would have to be pinned here, too"


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_environments_are_named_with_their_version(name: str) -> None:
    reference = read_component(catalogue.component_files()[name]).environment.reference or ""
    assert reference.count(":") == 2
    assert "@" not in reference
