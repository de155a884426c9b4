"""The model of each trainer under Azure ML's inference server, in an environment that has what the models ask for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from allranks import catalogue
from allranks.local.environments.building import pip_settings, uv_command
from tests.components.test_tables import MESSY, write_messy
from tests.environments.built import INPUTS, SMALL_TEXT, job, pipeline
from tests.helpers import clean_environment, free_port
from tests.local.support import ROOT, run_json
from tests.local.test_mlflow_clients import index_is_reachable
from tests.shared.serving import check_azure_serves
from tests.waiting import TIMEOUT, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(1800)]

TRAINERS = [name for name in catalogue.COMPONENTS if name.startswith("train_")]
MORE = ["text generator", "table", "table with Keras"]
DECODERS = ("train_fsdp", "train_deepspeed")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The folders of the models: one of each trainer, and those of other signatures."""
    if not index_is_reachable():
        pytest.skip("no package index can be reached, and what serves the models is installed from it")
    folder = tmp_path_factory.mktemp("served")
    for number in range(60):
        document = folder / "documents" / ("odd" if number % 2 else "even") / f"{number}.txt"
        document.parent.mkdir(parents=True, exist_ok=True)
        document.write_text(f"This is document {number}, which counts to {' '.join(map(str, range(number)))}.\n")
    table = write_messy(folder / "messy" / "t.csv")
    text = {**SMALL_TEXT, "data": str(folder / "documents")}
    jobs = {
        "digits": job("prepare_data", {}),
        "text": job("prepare_text", text),
        "passages": job("prepare_text", {**text, "task": "text_classification"}),
        "rows": job("prepare_data", {"dataset": "csv", "data": str(table.parent), **MESSY}),
    }
    data = {name: f"${{{{parent.jobs.{name}.outputs.data}}}}" for name in jobs}
    for name in TRAINERS:
        jobs[name] = job(name, {key: str(value).format(**data) for key, value in INPUTS[name].items()})
    jobs["generator"] = job("train_transformers", {"epochs": 1, "batch_size": 16, "data": data["text"]})
    jobs["table"] = job("train_ddp", {"epochs": 1, "data": data["rows"]})
    jobs["table_keras"] = job("train_tf_multiworker", {"epochs": 1, "data": data["rows"]})
    steps = run_json(pipeline(folder, jobs), cwd=folder, TF_CPP_MIN_LOG_LEVEL="3")["steps"]
    assert {step["status"] for step in steps.values()} == {"succeeded"}, {n: s["status"] for n, s in steps.items()}
    places = dict(zip([*TRAINERS, *MORE], [*TRAINERS, "generator", "table", "table_keras"], strict=True))
    return {name: Path(steps[place]["outputs"]["model"]) for name, place in places.items()}


@pytest.fixture(scope="module")
def environment(models: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One virtual environment with what all the models' own lists name, and nothing else."""
    folder = tmp_path_factory.mktemp("serving")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python, lists = folder / "bin" / "python", sorted({model / "requirements.txt" for model in models.values()})
    environ = {**pip_settings(), **os.environ}
    install_torch: list[str | Path] = [
        python,
        ROOT / "environments" / "install_torch.py",
        models["train_ddp"] / "requirements.txt",
        "--uv",
        *uv_command(),
    ]
    subprocess.run(install_torch, env=environ, check=True)
    asked: list[str | Path] = [word for one in lists for word in ("--requirement", one)]
    install = uv_command("pip", "install", "--quiet", "--python", python, *asked)
    done = subprocess.run(install, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def bodies(name: str, models: Mapping[str, Path]) -> list[Any]:
    """What is sent to a model: arrays of its rows, or tables in the form that pandas calls "split"."""
    if name in DECODERS:
        return [[[1, 2, 3, 4], [5, 6, 7, 8]]]
    if name in ("train_transformers", "text generator"):
        texts = pd.DataFrame({"text": ["This is document 1", "another"]})
        return [split(texts), split(pd.DataFrame({"tokens": [[1, 2, 3], [4, 5, 6]]}))]
    if name in MORE:
        table = next(folder for folder in models["table"].parents if (folder / "messy").is_dir()) / "messy" / "t.csv"
        return [split(pd.read_csv(table).drop(columns="fate").head(40))]
    return [np.random.default_rng(0).integers(0, 17, (3, 8, 8, 1)).tolist()]


def split(frame: pd.DataFrame) -> Any:
    return json.loads(frame.to_json(orient="split"))


def answer(port: int, path: str, body: Any = None) -> Any:
    """What the server says; None while nobody listens."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT) as given:  # noqa: S310  # of this machine
            return given.read().decode()
    except urllib.error.HTTPError:
        raise
    except OSError:
        return None


@pytest.mark.parametrize("name", [*TRAINERS, *MORE])
def test_azures_server_predicts_with_the_model(
    name: str, models: Mapping[str, Path], environment: Path, tmp_path: Path
) -> None:
    import mlflow.pyfunc  # here, for each worker of the tests would import it

    folder, port = models[name], free_port()
    check_azure_serves(folder)
    variables = {"PYTHONPATH": None, "AZUREML_MODEL_DIR": str(folder.parent), "MLFLOW_MODEL_FOLDER": folder.name}
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    script = Path(__file__).with_name("scoring.py")
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [environment / "bin" / "azmlinfsrv", "--entry_script", script, "--port", str(port)],
            cwd=tmp_path, env=clean_environment({**variables, "PATH": path}), stdout=log, stderr=log,
        )  # fmt: skip
    try:
        wait_for(lambda: server.poll() is not None or answer(port, "/"))
        assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
        here = mlflow.pyfunc.load_model(str(folder))
        for body in bodies(name, models):
            given = json.loads(answer(port, "/score", {"input_data": body}))
            rows = pd.DataFrame(body["data"], columns=body["columns"]) if isinstance(body, dict) else np.array(body)
            expected = here.predict(rows.astype(np.uint8) if rows.ndim == 4 else rows)
            if isinstance(expected, pd.DataFrame):
                assert [row["prediction"] for row in given] == list(expected.prediction)
            else:
                assert np.allclose(given, expected, atol=1e-4)
        assert "input_data" in answer(port, "/swagger.json")
    finally:
        server.terminate()
        server.wait(TIMEOUT)
