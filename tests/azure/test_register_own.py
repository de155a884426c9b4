"""Components and pipelines of one's own, in a workspace and a registry: what `allranks init` writes, and others' YAML."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from allranks import library
from allranks.azure.client import AssetPlace
from allranks.azure.register_assets import find_assets
from allranks.azure.register_copies import asset_body
from allranks.azure.register_own import own_assets
from allranks.errors import SpecError, UsageError
from tests.azure.registering import properties, register
from tests.azure.stand_in.fixture import StandIn
from tests.in_process import allranks

SCRIPT = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs', type=int, default=2)\np.parse_args()\n"
)


def test_a_folder_is_registered_with_its_environment(stand_in: StandIn, tmp_path: Path) -> None:
    """In a registry, which takes no second version of an anonymous environment; a workspace is asked the same way."""
    place = ["--registry", "shared"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/count.py").write_text(SCRIPT)
    assert allranks("init", "mine/count.py", cwd=tmp_path).returncode == 0
    planned = allranks("submit", "mine", "--scale", "1x1", "--dry-run", "--json", cwd=tmp_path)
    assert json.loads(planned.stdout)["steps"]["count"]["nodes"] == 1, planned.stderr
    first = register(tmp_path, "mine", *place)
    environment = first["assets"][0]["name"]
    assert [(one["kind"], one["name"], one["version"]) for one in first["assets"]] == [
        ("environment", environment, "1"),
        ("component", "count", "1"),
    ]
    assert re.fullmatch(r"environment-[0-9a-f]{12}", environment)
    store = stand_in.state["registry"]
    specification = properties(store, "components", "count", "1")["componentSpec"]
    assert specification["environment"].endswith(f"/environments/{environment}/versions/1")
    pipeline = register(tmp_path, "mine/pipeline.yml", *place)
    assert [(one["kind"], one["name"], one["action"]) for one in pipeline["assets"]] == [
        ("environment", environment, "unchanged"),
        ("component", "count", "unchanged"),
        ("pipeline_component", "mine_pipeline", "publish"),
    ]
    assert "settings, experiment_name from the pipeline that it is put into" in pipeline["notes"][0]
    store = stand_in.state["registry"]
    specification = properties(store, "components", "mine_pipeline", "1")["componentSpec"]
    assert specification["jobs"]["count"]["componentId"].endswith("/components/count/versions/1")
    assert specification["inputs"] == {"epochs": {"type": "integer", "default": "2"}}
    (tmp_path / "mine/count.py").write_text(SCRIPT + "print('more')\n")
    refused = allranks("register", "mine/pipeline.yml", *place, cwd=tmp_path)
    assert refused.returncode == 2
    assert "component count 1: its code changed" in refused.stderr
    assert "Raise `version:` in mine/component.yaml, and register again." in refused.stderr
    assert "mine_pipeline" not in refused.stderr, "its steps name the component and version that they did"


OWN = "type: command\nname: mine\nversion: '1'\ncommand: echo hello\n"
IN_PLACE = "environment: {image: some.test/image, conda_file: conda.yaml}\n"


@pytest.mark.parametrize("folder", ["one", "other"])
def test_components_with_equal_environments_share_one(tmp_path: Path, folder: str) -> None:
    for name, version in (("one", "1"), ("other", "7")):
        (tmp_path / name).mkdir()
        text = OWN.replace("mine", name).replace("'1'", f"'{version}'") + IN_PLACE
        (tmp_path / name / "component.yaml").write_text(text)
        (tmp_path / name / "conda.yaml").write_text("dependencies: [python=3.11]\n")
    shared, *components = own_assets([tmp_path / "one", tmp_path / "other"])
    assert (shared.kind, shared.version, [one.kind for one in components]) == ("environment", "1", ["component"] * 2)
    assert {one.needs for one in components} == {(("environment", shared.name),)}
    (tmp_path / folder / "conda.yaml").write_text("dependencies: [python=3.12]\n")
    assert [one.kind for one in own_assets([tmp_path / "one", tmp_path / "other"])].count("environment") == 2


@pytest.mark.parametrize("conda", [b"dependencies: [\n", b"name: caf\xe9\n", b"- python\n", b""])
def test_a_conda_file_that_cannot_be_read_is_named(tmp_path: Path, conda: bytes) -> None:
    (tmp_path / "component.yaml").write_text(OWN + IN_PLACE)
    (tmp_path / "conda.yaml").write_bytes(conda)
    with pytest.raises(SpecError, match=r"conda\.yaml"):
        own_assets([tmp_path])


def test_a_folder_without_a_component_names_what_writes_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = allranks("register", "empty", "--workspace", cwd=tmp_path)
    assert said.returncode == 2
    assert "there is neither a component.yaml nor a pipeline.yml in 'empty'" in said.stderr


CLEAN = """
name: clean
version: "3"
type: command
command: echo '${{inputs.rate}}' '${{inputs.data}}' > ${{outputs.rows}}
environment: azureml:theirs:1
inputs: {data: {type: uri_folder}, rate: {type: number}}
outputs: {rows: {type: uri_file}}
"""
NESTED = """
name: nested
version: "5"
type: pipeline
inputs: {data: {type: uri_folder}}
jobs:
  again: {type: command, component: ../clean.yaml, inputs: {data: "${{parent.inputs.data}}", rate: 0.5}}
"""
THEIRS = """
type: pipeline
display_name: Theirs
inputs:
  data: {type: uri_folder, path: ./rows, description: What is cleaned}
  rate: 0.1
outputs: {rows: {type: uri_file, mode: upload}}
settings: {default_compute: "azureml:cpu"}
jobs:
  clean:
    component: ./clean.yaml
    inputs: {data: "${{parent.inputs.data}}", rate: "${{parent.inputs.rate}}"}
    outputs: {rows: "${{parent.outputs.rows}}"}
  tune:
    type: sweep
    trial: file:./clean.yaml
    inputs: {data: "${{parent.inputs.data}}"}
    search_space: {rate: {type: choice, values: [0.1, 0.2]}}
    objective: {goal: minimize, primary_metric: loss}
    sampling_algorithm: random
    limits: {max_total_trials: 2}
  whole: {type: pipeline, component: parts/nested.yaml, inputs: {data: "${{parent.inputs.data}}"}}
  there: {type: command, component: "azureml:elsewhere:4"}
  check: {type: command, component: "azureml:check_cluster"}
"""


def test_a_pipeline_that_somebody_wrote_is_a_pipeline_component_after_all_that_it_runs(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "parts").mkdir()
    for name, text in {"clean.yaml": CLEAN, "parts/nested.yaml": NESTED, "theirs.yaml": THEIRS}.items():
        (tmp_path / name).write_text(text)
    *before, found = find_assets([str(tmp_path / "theirs.yaml")], "2")
    assert [(one.kind, one.name, one.version) for one in before] == [
        ("environment", "allranks-evaluate", library.VERSION),
        ("component", "check_cluster", library.VERSION),
        ("component", "clean", "3"),
        ("pipeline", "nested", "5"),
    ]
    assert found.dropped == ("settings", "the data of data")
    body = asset_body(found, AssetPlace("registry", "shared"))["properties"]["componentSpec"]
    assert (body["name"], body["version"], body["display_name"]) == ("theirs", "2", "Theirs")
    ids = {name: step.get("componentId") or step["trial"]["componentId"] for name, step in body["jobs"].items()}
    there = "azureml://registries/shared/components"
    assert ids == {
        "clean": f"{there}/clean/versions/3",
        "tune": f"{there}/clean/versions/3",
        "whole": f"{there}/nested/versions/5",
        "there": f"{there}/elsewhere/versions/4",
        "check": f"{there}/check_cluster/versions/{library.VERSION}",
    }
    assert body["inputs"] == {
        "data": {"type": "uri_folder", "description": "What is cleaned"},
        "rate": {"type": "number", "default": "0.1"},
    }
    assert body["outputs"]["rows"]["type"] == "uri_file"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("component: ./clean.yaml", "component: ./none.yaml", "none.yaml"),
        (
            "    component: ./clean.yaml",
            "    component: ./clean.yaml\n    compute: azureml:gpu",
            "belongs to one workspace",
        ),
        ('data: "${{parent.inputs.data}}", rate: "$', 'data: {path: ./rows}, rate: "$', "lies on this machine"),
        (
            "    component: ./clean.yaml",
            "    command: echo\n    environment: azureml:theirs:1",
            "has no file of its own",
        ),
        ("jobs:", "name: clean\njobs:", "is the name of"),
        ("jobs:", "name: a-b\njobs:", "'a-b' is no component's name: lower-case letters"),
        ("display_name: Theirs", "display_name: Other", "theirs.yaml: version: has no version."),
    ],
)
def test_what_cannot_be_registered_is_refused_by_its_reason(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "parts").mkdir()
    texts = {"clean.yaml": CLEAN, "parts/nested.yaml": NESTED, "theirs.yaml": THEIRS.replace(before, after, 1)}
    assert texts["theirs.yaml"] != THEIRS
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=re.escape(said)):
        find_assets([str(tmp_path / "theirs.yaml")], "" if "version" in said else "2")


def test_a_version_for_no_pipeline_is_refused() -> None:
    with pytest.raises(UsageError, match="--pipeline-version 2 is for a pipeline of yours"):
        find_assets(["train_ddp"], "2")
