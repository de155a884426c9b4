from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allranks import catalogue
from allranks.local.assets import MAP_FILE


@pytest.mark.parametrize("name", [*catalogue.COMPONENTS, *catalogue.PIPELINES])
def test_show_names_every_input_and_output(cli: Callable[..., Any], name: str) -> None:
    document = cli("show", name, "--json").json
    page = cli("show", name).out
    assert document["inputs"] or document["kind"] == "pipeline"
    for port in (*document["inputs"], *document["outputs"]):
        assert f"  {port} " in page
    assert document["example"].startswith(f"allranks run {name}")
    assert document["example"] in page


def test_show_a_component(cli: Callable[..., Any]) -> None:
    document = cli("show", "train_ddp", "--json").json
    assert document["kind"] == "component"
    assert document["distribution"] == "pytorch"
    assert document["environment"].startswith("azureml:allranks-pytorch:")
    assert document["inputs"]["data"] | {"description": ""} == {
        "type": "uri_folder",
        "required": True,
        "default": None,
        "choices": [],
        "min": None,
        "max": None,
        "description": "",
    }
    assert "adamw" in document["inputs"]["optimizer"]["choices"]
    assert document["example"] == "allranks run train_ddp data=DATA"
    page = cli("show", "train_ddp").out
    assert "sgd | adam | adamw" in page
    assert "pytorch, " in page


def test_show_a_pipeline_lists_its_steps(cli: Callable[..., Any]) -> None:
    document = cli("show", "image_classification", "--json").json
    assert document["kind"] == "pipeline"
    assert list(document["steps"]) == ["prepare", "train", "evaluate"]
    assert document["steps"]["train"]["component"] == "train_ddp"


REGISTERED = """\
type: pipeline
jobs:
  theirs:
    component: azureml://registries/shared/components/theirs/versions/3
    inputs: {text: hello}
"""
THEIRS = """\
type: command
name: theirs
inputs: {text: {type: string}}
environment: azureml:e:1
command: echo ${{inputs.text}}
"""


@pytest.mark.parametrize("beside", [False, True], ids=["option", "file beside"])
def test_show_takes_what_stands_for_a_registered_component(
    cli: Callable[..., Any], tmp_path: Path, *, beside: bool
) -> None:
    # A hidden folder is where a checkout's own assets are not looked for.
    pipeline, theirs = tmp_path / "pipeline.yaml", tmp_path / ".elsewhere/theirs.yaml"
    theirs.parent.mkdir()
    pipeline.write_text(REGISTERED)
    theirs.write_text(THEIRS)
    assert "Give its YAML with --map" in cli("show", str(pipeline)).err
    mapping = "azureml://registries/shared/components/theirs/versions/3"
    options = [] if beside else ["--map", f"{mapping}={theirs}"]
    if beside:
        (tmp_path / MAP_FILE).write_text(f"'{mapping}': .elsewhere/theirs.yaml\n")
    document = cli("show", str(pipeline), *options, "--json").json
    assert document["steps"]["theirs"]["component"] == "theirs"
    assert document["example"] == " ".join(["allranks run", str(pipeline), *options])


@pytest.mark.slow
def test_show_takes_a_python_pipeline(cli: Callable[..., Any]) -> None:
    pytest.importorskip("azure.ai.ml")
    file = catalogue.pipeline_files()["image_classification"].with_suffix(".py")
    document = cli("show", f"{file}:image_classification", "--json").json
    assert (document["kind"], document["path"]) == ("pipeline", str(file))
    assert list(document["steps"]) == list(cli("show", "image_classification", "--json").json["steps"])
    assert f"  {file}\n" in cli("show", f"{file}:image_classification").out


def test_an_example_can_be_pasted_whatever_the_folder_s_name(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "it's mine" / "echo.yaml"
    path.parent.mkdir()
    path.write_text("type: pipeline\njobs: {a: {command: echo hello, environment: {image: x}}}\n")
    example = cli("show", str(path), "--json").json["example"]
    assert shlex.split(example) == ["allranks", "run", str(path)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train-ddp", "did you mean 'train_ddp'?"),
        ("zzz", "Try `allranks list`."),
        ("pytorch", "is an environment"),
        ("./nothing.yaml", "there is no file './nothing.yaml'"),
        ("/", "'/' is a folder, not a YAML file"),
        ("/dev/null", "there is no file '/dev/null'"),
    ],
)
def test_an_unknown_name_says_where_to_look(cli: Callable[..., Any], name: str, message: str) -> None:
    called = cli("show", name)
    assert called.code == 2
    assert message in called.err
