"""The wheel, installed where there is no checkout, with the core's few dependencies and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.library import VERSION

ROOT = Path(__file__).parents[1]

PIPELINE = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
inputs:
  word: hello
jobs:
  write:
    type: command
    component:
      type: command
      name: write
      inputs: {word: {type: string}}
      outputs: {text: {type: uri_folder}}
      environment: {image: "python:3.11-slim"}
      command: >-
        echo '${{inputs.word}}' > '${{outputs.text}}/word.txt'
    inputs: {word: "${{parent.inputs.word}}"}
  read:
    type: command
    component:
      type: command
      name: read
      inputs: {text: {type: uri_folder}}
      environment: {image: "python:3.11-slim"}
      command: >-
        python3 -c "print(open('${{inputs.text}}/word.txt').read())"
    inputs: {text: "${{parent.jobs.write.outputs.text}}"}
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel; its Python sees nothing of this one."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    binaries = folder / "venv" / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(pip, check=True)
    return binaries


@pytest.fixture
def call(installed: Path, tmp_path: Path) -> Callable[..., str]:
    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(installed / "allranks"), *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_wheel_holds_no_leftovers(wheel: Path) -> None:
    import zipfile

    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    assert {name.partition("/")[0] for name in names} == {"allranks", f"allranks-{VERSION}.dist-info"}, "no tools"
    assert "allranks/py.typed" in names
    assert "allranks/_library/shared/__init__.py" in names
    for name in catalogue.COMPONENTS:
        assert f"allranks/_library/components/{name}/component.yaml" in names
        assert f"allranks/_library/components/{name}/.amlignore" in names


def test_version_list_and_show(call: Callable[..., str]) -> None:
    assert call("--version") == f"allranks {VERSION}\n"
    document = json.loads(call("list", "--json"))
    assert [entry["name"] for entry in document["components"]] == list(catalogue.COMPONENTS)
    assert "allranks/_library/components" in document["components"][0]["path"]
    assert "learning_rate" in call("show", "train_ddp")


def test_lint_finds_the_library_sound(call: Callable[..., str]) -> None:
    assert call("lint").endswith("nothing wrong\n")


def test_a_copy_is_sound_too(call: Callable[..., str]) -> None:
    call("copy", "image_classification")
    assert call("lint").endswith("nothing wrong\n")


def test_run_a_pipeline(call: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "greet.yaml").write_text(PIPELINE)
    result = json.loads(call("run", "greet.yaml", "word=hola", "--json"))
    assert result["status"] == "succeeded"
    assert Path(result["steps"]["write"]["outputs"]["text"], "word.txt").read_text() == "hola\n"
    assert "hola" in call("runs", "logs", "latest", "read")
