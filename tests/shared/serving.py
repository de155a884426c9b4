"""What Azure ML's scoring script for MLflow models needs of a saved model, read from the model's files alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from packaging.requirements import Requirement

from tests.helpers import finish, started

SCRIPT_IMPORTS = {"mlflow", "azureml-ai-monitoring", "azureml-inference-server-http"}


SERVE = """
    import torch
    import json, sys, warnings
    import mlflow.pyfunc, numpy as np
    warnings.simplefilter("error", UserWarning)  # after MLflow's import, which warns about itself
    folders = json.load(open("folders.json"))
    rows = [np.load(f"rows-{number}.npy") for number in range(len(folders))]
    models = [mlflow.pyfunc.load_model(folder) for folder in folders]
    assert "shared" not in sys.modules
    print(json.dumps([model.predict(each).tolist() for model, each in zip(models, rows)]))
"""


def served_predictions(scratch: Path, rows: npt.NDArray[Any], *models: Path) -> list[npt.NDArray[Any]]:
    """What MLflow predicts with saved models in a process that does not find the library."""
    return served_apart(scratch, dict.fromkeys(models, rows))


def served_apart(scratch: Path, rows: Mapping[Path, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """What MLflow predicts with each saved model for its own rows."""
    for number, each in enumerate(rows.values()):
        np.save(scratch / f"rows-{number}.npy", each)
    (scratch / "folders.json").write_text(json.dumps([str(model) for model in rows]))
    with started(SERVE, [{"PYTHONPATH": None}], scratch) as processes:
        (done,) = finish(processes)
    assert done.returncode == 0, done.stderr
    return [np.array(predictions) for predictions in json.loads(done.stdout.splitlines()[-1])]


def check_azure_serves(folder: Path) -> None:
    """Assert that the model's environment has the script's imports, and that the script starts with its signature."""
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert yaml.safe_load((folder / "conda.yaml").read_text())["dependencies"][-1] == {"pip": lines}
    assert "-r requirements.txt" in yaml.safe_load((folder / "python_env.yaml").read_text())["dependencies"]
    needed = {one.name: one.specifier for one in map(Requirement, lines)}
    assert needed.keys() >= SCRIPT_IMPORTS
    assert needed["mlflow"].contains("2.22.5")
    assert not needed["mlflow"].contains("3.0.0")
    assert "pandas" not in needed, "MLflow 2 needs one below 3: the version of the training may be above"

    document = yaml.safe_load((folder / "MLmodel").read_text())
    example, signature = document.get("saved_input_example_info"), document["signature"]
    if example is None:
        assert _has_sample(json.loads(signature["inputs"])), signature
    else:
        held = json.loads((folder / example["artifact_path"]).read_text())
        assert held.keys() == ({"inputs"} if example["type"] == "ndarray" else {"columns", "index", "data"})
    assert signature["outputs"] is None or _has_sample(json.loads(signature["outputs"])), signature


def _has_sample(schema: list[dict[str, Any]]) -> bool:
    """Whether the script can make an example of a schema: other types, and open sizes but the first, end it."""
    if schema[0]["type"] != "tensor":
        return {column["type"] for column in schema} <= {"string", "double", "long", "boolean"}
    return all(size >= 0 for size in schema[0]["tensor-spec"]["shape"][1:])
