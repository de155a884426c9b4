"""The wheel, installed where there is no checkout, with the core's few dependencies and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.library import VERSION
from allranks.local.environments.building import pip_settings, uv_command
from tests.azure.stand_in.fixture import StandIn, azure_server
from tests.helpers import clean_environment

__all__ = ["azure_server"]

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

OWN = """
from azure.ai.ml import Input
from azure.ai.ml.dsl import pipeline

from allranks import components, scale

@pipeline(default_compute="cpu-cluster")
def own(epochs: int = 2):
    prepare = components.prepare_data()
    train = scale(components.train_ddp(data=prepare.outputs.data, epochs=epochs), nodes=3)
    return {"model": train.outputs.model}
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
    binaries = tmp_path_factory.mktemp("installed") / "venv" / "bin"
    subprocess.run(uv_command("venv", "--quiet", "--python", sys.executable, binaries.parent), check=True)
    install = uv_command("pip", "install", "--quiet", "--python", binaries / "python")
    install += ["--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    as_pip = {**pip_settings(), "UV_INDEX_STRATEGY": "unsafe-best-match"}  # all indexes count alike
    subprocess.run(install, env={**as_pip, **os.environ}, check=True)
    return binaries


@pytest.fixture
def call(installed: Path, tmp_path: Path) -> Callable[..., str]:
    def run(*arguments: str, env: dict[str, str] | None = None) -> str:
        command, environ = [str(installed / "allranks"), *arguments], env or clean_environment({"PYTHONPATH": None})
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
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


def test_the_library_and_a_copy_are_sound(call: Callable[..., str]) -> None:
    for _ in range(2):
        assert call("lint").endswith("nothing wrong\n")
        call("copy", "image_classification")


def test_run_a_pipeline(call: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "greet.yaml").write_text(PIPELINE)
    result = json.loads(call("run", "greet.yaml", "word=hola", "--json"))
    assert result["status"] == "succeeded"
    assert Path(result["steps"]["write"]["outputs"]["text"], "word.txt").read_text() == "hola\n"
    assert "hola" in call("runs", "logs", "latest", "read")


@pytest.mark.exhaustive
def test_a_wheel_composes_exports_and_submits(
    azure_server: StandIn, call: Callable[..., str], installed: Path, tmp_path: Path
) -> None:
    """With the SDK of the environment around the tests, whose packages stand on PYTHONPATH."""
    azure_server.reset()
    (tmp_path / "own.py").write_text(OWN)
    environ = azure_server.environ(PYTHONPATH=sysconfig.get_path("purelib"))
    where = [str(installed / "python"), "-c", "import allranks; print(allranks.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environ, check=True, capture_output=True, text=True).stdout
    assert found.startswith(str(installed.parent)), "the wheel's package, not this checkout's"
    call("register", "prepare_data", "train_ddp", "--workspace", env=environ)
    sent = json.loads(call("submit", "own.py:own", "epochs=4", "--json", env=environ))
    assert sent["status"] in ("waiting", "running")
    properties = azure_server.requests("PUT", f"/jobs/{sent['job']}")[0]["body"]["properties"]
    assert properties["jobs"]["train"]["resources"]["instance_count"] == 3
    assert properties["inputs"]["epochs"]["value"] == "4"
    call("export", "own.py:own", "-o", "own.yaml", env=environ)
    assert "instance_count: 3" in (tmp_path / "own.yaml").read_text()
    shown = json.loads(call("submit", "image_classification", "--registered", "--dry-run", "--json", env=environ))
    assert shown["steps"]["train"]["component"] == f"azureml:train_ddp:{VERSION}"
