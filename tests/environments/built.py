"""`make test-environments`: each environment is built from its lock, and its components run in it and in no other.

Not among the tests that pytest collects by itself: it downloads gigabytes. The tool runs in an environment of its own
that has nothing but the core, so a step whose environment is not built would be refused. What a component reads was
made before, by this interpreter. ALLRANKS_ENVIRONMENTS names the environments to prove; all if it is empty. They are
removed at the end unless ALLRANKS_KEEP is set.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from allranks import catalogue
from allranks.spec import read_component
from tests.local.support import ROOT, run_json

CHOSEN = os.environ.get("ALLRANKS_ENVIRONMENTS", "").split() or list(catalogue.ENVIRONMENTS)
SMALL_TEXT = {"dataset": "files", "data": "{documents}", "sequence_length": 32, "vocabulary": 300}
TRAINING = {"epochs": 1, "batch_size": 32, "data": "{digits}"}
LANGUAGE = {"max_steps": 2, "batch_size": 4, "width": 32, "layers": 1, "heads": 2, "data": "{text}"}
INPUTS: Mapping[str, Mapping[str, Any]] = {
    "prepare_data": {},
    "prepare_text": SMALL_TEXT,
    "train_ddp": TRAINING,
    "train_torchrun": {**TRAINING, "processes_per_node": 2},
    "train_fsdp": LANGUAGE,
    "train_deepspeed": LANGUAGE,
    "train_lightning": TRAINING,
    "train_transformers": {"epochs": 1, "batch_size": 64, "data": "{passages}"},
    "train_horovod": TRAINING,
    "train_horovod_keras": TRAINING,
    "train_tf_multiworker": TRAINING,
    "train_tf_parameter_server": TRAINING,
    "evaluate": {"data": "{digits}", "model": "{model}"},
    "compare_models": {"evaluation_1": "{report}", "evaluation_2": "{report}"},
    "check_cluster": {},
}
"""The smallest that makes a component work; {digits} and the like stand for what was made before."""

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder ``.allranks`` with every environment that is to be proven, and runs."""
    folder = tmp_path_factory.mktemp("built")
    yield folder
    if not os.environ.get("ALLRANKS_KEEP"):
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command ``allranks`` of an environment with the core and nothing else."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [
        str(folder / "bin/python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        str(ROOT / "constraints.txt"),
    ]
    subprocess.run([*install, "--editable", str(ROOT)], check=True)
    return folder / "bin" / "allranks"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What the components read, made by this interpreter."""
    folder = tmp_path_factory.mktemp("made")
    for number in range(120):
        document = folder / "documents" / ("odd" if number % 2 else "even") / f"{number}.txt"
        document.parent.mkdir(parents=True, exist_ok=True)
        document.write_text(f"This is document {number}, which counts to {' '.join(map(str, range(number)))}.\n")
    text = {**SMALL_TEXT, "data": str(folder / "documents")}
    jobs = {
        "digits": job("prepare_data", {}),
        "text": job("prepare_text", text),
        "passages": job("prepare_text", {**text, "task": "text_classification"}),
        "model": job("train_ddp", {**TRAINING, "data": "${{parent.jobs.digits.outputs.data}}"}),
        "report": job(
            "evaluate",
            {"data": "${{parent.jobs.digits.outputs.data}}", "model": "${{parent.jobs.model.outputs.model}}"},
        ),
    }
    result = run_json(pipeline(folder, jobs), "--scale", "model=1x1", cwd=folder)
    assert result["status"] == "succeeded", result
    ports = {"digits": "data", "text": "data", "passages": "data", "model": "model", "report": "report"}
    outputs = {name: result["steps"][name]["outputs"][port] for name, port in ports.items()}
    return {**outputs, "documents": text["data"]}


def job(component: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "command", "component": f"azureml:{component}", "inputs": dict(inputs)}


def pipeline(folder: Path, jobs: Mapping[str, Any]) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps({"type": "pipeline", "jobs": jobs}))
    return path


def call(tool: Path, *arguments: str | Path, cwd: Path) -> str:
    """Run the tool without anything of this environment on its PATH; what it prints on standard output."""
    environ = {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environ["PATH"] = os.pathsep.join(
        each for each in environ["PATH"].split(os.pathsep) if Path(each) != Path(sys.executable).parent
    )
    done = subprocess.run([tool, *arguments], cwd=cwd, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("environment", CHOSEN)
def test_its_components_run_in_an_environment_that_was_built_from_its_lock(
    environment: str, home: Path, tool: Path, made: Mapping[str, str], tmp_path: Path
) -> None:
    (state,) = json.loads(call(tool, "env", "build", environment, "--runs-dir", home, "--json", cwd=tmp_path))[
        "environments"
    ]
    assert state["built"]
    components = [name for name, path in catalogue.component_files().items() if environment in _environment(path)]
    assert components, "an environment in which nothing runs"
    jobs = {}
    for name in components:
        inputs = {key: str(value).format(**made) for key, value in INPUTS[name].items()}
        jobs[name] = job(name, inputs)
    result = json.loads(call(tool, "run", pipeline(tmp_path, jobs), "--runs-dir", home, "--json", cwd=tmp_path))
    assert {name: step["status"] for name, step in result["steps"].items()} == dict.fromkeys(components, "succeeded")
    if not os.environ.get("ALLRANKS_KEEP"):
        shutil.rmtree(home / "environments" / environment)


def _environment(component: Path) -> str:
    return str(read_component(component).environment.reference)


def test_every_component_has_a_smallest_run() -> None:
    assert set(INPUTS) == set(catalogue.COMPONENTS)
