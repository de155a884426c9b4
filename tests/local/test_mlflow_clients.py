"""MLflow itself against the engine: versions that share no database, autologging, sweeps, and many trials at once."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.local.support import pipeline, run_json
from tests.local.test_mlflow import tracked
from tests.waiting import TIMEOUT

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(600)]

PLAIN = """
import mlflow
for step in range(3):
    mlflow.log_metric("loss", 1 / (step + 1), step=step)
mlflow.log_param("version", mlflow.__version__)
mlflow.log_text("by " + mlflow.__version__, "note.txt")
with mlflow.start_run(nested=True, run_name="fold"):
    mlflow.log_metric("loss", 7)
"""
OWN = "{{image: any, conda_file: {{dependencies: [python={python}, {{pip: [{packages}]}}]}}}}"
"""An environment of a step's own; setuptools has lost what MLflow 2.9 imports of it."""


def written(folder: Path, jobs: str, **scripts: str) -> Path:
    (folder / "code").mkdir()
    for name, text in scripts.items():
        (folder / "code" / f"{name}.py").write_text(text)
    return pipeline(folder, f"type: pipeline\njobs:\n{jobs}")


def command(name: str, script: str, environment: str = "azureml:any:1") -> str:
    return f"  {name}: {{type: command, code: ./code, command: python {script}.py, environment: {environment}}}\n"


def sweep(space: str, metric: str, limits: str, sampling: str) -> str:
    trial = "type: command, code: ./code, command: 'python trial.py ${{inputs.x}}', environment: 'azureml:any:1'"
    return f"""\
  tune:
    type: sweep
    trial: {{{trial}, inputs: {{x: {{type: number}}}}}}
    sampling_algorithm: {sampling}
    search_space: {{x: {{{space}}}}}
    objective: {{goal: minimize, primary_metric: {metric}}}
    limits: {{{limits}}}
"""


def index_is_reachable() -> bool:
    try:
        with urllib.request.urlopen("https://pypi.org/simple/mlflow-skinny/", timeout=TIMEOUT) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_two_versions_in_one_pipeline_each_in_an_environment_of_its_own(tmp_path: Path) -> None:
    if not index_is_reachable():
        pytest.skip("no package index can be reached, and two versions of MLflow are installed from it")
    old = OWN.format(python="3.10", packages='mlflow-skinny==2.9.2, "setuptools<80"')
    new = OWN.format(python="3.11", packages="mlflow-skinny==3.4.0")
    result = run_json(
        written(tmp_path, command("old", "train", old) + command("new", "train", new), train=PLAIN), cwd=tmp_path
    )
    assert result["exit"] == 0, result
    for name, version in (("old", "2.9.2"), ("new", "3.4.0")):
        step = result["steps"][name]
        assert step["params"] == {"version": version}
        assert step["curves"] == {"loss": [[0, 1], [1, 0.5], [2, pytest.approx(1 / 3)]]}
        (fold,) = step["child_runs"]
        assert (fold["name"], fold["parent"], fold["metrics"]) == ("fold", step["mlflow_run_id"], {"loss": 7})
        files = tracked(tmp_path, step).artifacts
        assert files is not None
        assert (files / "note.txt").read_text() == f"by {version}"


FOREST = """
import mlflow
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
mlflow.sklearn.autolog(log_models=False, log_datasets=False)
x = np.arange(40.0).reshape(-1, 1)
GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2).fit(x, x[:, 0] > 20)
"""
NET = """
import lightning.pytorch as pl
import mlflow
import torch
from torch.utils.data import DataLoader, TensorDataset
class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
mlflow.pytorch.autolog(log_models=False)
x = torch.rand(64, 1)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
pl.Trainer(max_epochs=5, accelerator="cpu", **quiet).fit(Line(), DataLoader(TensorDataset(x, 2 * x), 16))
"""
TRIAL = """
import sys
import mlflow
for step in range(5):
    mlflow.log_metric("m", float(sys.argv[1]) + 1 / (1 + step), step=step)
"""


def test_autologging_and_a_sweep_of_plain_mlflow(tmp_path: Path) -> None:
    tune = sweep(
        "type: choice, values: [3, 1, 2]", "m", "max_total_trials: 3, max_concurrent_trials: 2", sampling="grid"
    )
    jobs = command("forest", "forest") + command("net", "net") + tune
    result = run_json(written(tmp_path, jobs, forest=FOREST, net=NET, trial=TRIAL), cwd=tmp_path)
    assert result["exit"] == 0, result
    steps = result["steps"]
    assert steps["forest"]["metrics"]["training_accuracy_score"] == 1
    assert steps["forest"]["params"]["estimator"] == "LogisticRegression()"
    assert [child["params"]["C"] for child in steps["forest"]["child_runs"]] in (["0.1", "1.0"], ["1.0", "0.1"])
    assert len(steps["net"]["curves"]["loss"]) == 5
    assert steps["net"]["params"]["optimizer_name"] == "SGD"
    assert [trial["metric"] for trial in steps["tune"]["trials"]] == [3.2, 1.2, 2.2]
    assert (steps["tune"]["best_trial"], steps["tune"]["metrics"]) == (1, {"m": 1.2})
