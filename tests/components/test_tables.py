"""Tables from the file to the report: prepared in constant memory, trained on and measured with real ranks."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from sklearn import metrics as reference

from shared.data import Dataset
from tests.components.support import Finished, run_component
from tests.local.support import run_json

FEATURES = 10


def write_table(path: Path, rows: int) -> Path:
    """A table with a target that depends on its features."""
    x = np.random.default_rng(0).normal(size=(rows, FEATURES)).round(3).astype("float32")
    table = pd.DataFrame(x, columns=[f"f{number}" for number in range(FEATURES)])
    table["target"] = 1000 + 50 * (x[:, 0] * 2 + np.sin(x[:, 1]) + x[:, 2])
    path.parent.mkdir(parents=True)
    table.to_csv(path, index=False)
    return path


def prepare(folder: Path, table: Path, *arguments: object) -> Path:
    output = folder / "data"
    finished = run_component(
        "prepare_data", "--output-data", output, "--dataset", table.suffix[1:], "--data", table.parent, *arguments,
        folder=folder,
    )  # fmt: skip
    assert finished.ok, finished.output
    return output


def train(folder: Path, data: Path, *arguments: object, processes: int = 1) -> tuple[Finished, Path]:
    out = folder / f"trained-{processes}"
    ports = [part for port in ("model", "checkpoints", "metrics") for part in (f"--{port}", out / port)]
    return run_component("train_ddp", "--data", data, *ports, *arguments, folder=folder, processes=processes), out


@pytest.mark.slow
def test_a_regression_from_the_table_to_the_report(tmp_path: Path) -> None:
    import mlflow

    table = write_table(tmp_path / "table" / "t.csv", 4000)
    data = prepare(tmp_path, table, "--task", "regression")
    models = []
    for processes in (1, 2):
        finished, out = train(tmp_path, data, "--epochs", 6, processes=processes)
        assert finished.ok, finished.output
        assert "validation rmse" in finished.output
        models.append(out / "model")
    one, two = (load_file(next(model.rglob("*.safetensors"))) for model in models)
    assert max(np.abs(one[name] - two[name]).max() for name in one) < 1e-4
    history = json.loads((out / "metrics" / "metrics.json").read_text())
    assert {"validation_rmse", "validation_mae", "validation_r2"} <= history.keys()

    report = tmp_path / "report"
    finished = run_component(
        "evaluate", "--data", data, "--model", models[1], "--report", report, folder=tmp_path, processes=2
    )
    assert finished.ok, finished.output
    assert finished.output.count("rmse ") == 1
    numbers = json.loads((report / "metrics.json").read_text())
    with (report / "predictions.csv").open(newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    targets, said = ([row[name] for row in rows] for name in ("target", "prediction"))
    assert len(rows) == numbers["rows"] == 800
    assert numbers["rmse"] == pytest.approx(reference.root_mean_squared_error(targets, said))
    assert numbers["mae"] == pytest.approx(reference.mean_absolute_error(targets, said))
    assert numbers["r2"] == pytest.approx(reference.r2_score(targets, said))
    assert numbers["r2"] > 0.95
    assert 900 < np.mean(said) < 1100  # in the target's own units
    for name in ("predicted_true.png", "residuals.png", "residual_histogram.png", "index.html"):
        assert (report / name).stat().st_size > 1000
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "://" not in page
    assert "target target" in page

    index = data / "index.json"
    index.write_text(index.read_text().replace('"name": "target"', '"name": "price"'))
    refused = run_component("evaluate", "--data", data, "--model", models[1], "--report", report, folder=tmp_path)
    assert refused.codes == (2,)
    assert "the model predicts 'target', the data's target is 'price'" in refused.output

    loaded = mlflow.pyfunc.load_model(str(models[1]))
    rows = pd.DataFrame(np.zeros((3, FEATURES), "int64"), columns=[f"f{n}" for n in range(FEATURES)])
    assert list(loaded.predict(rows).columns) == ["prediction"]
    assert 900 < loaded.predict(rows).prediction.mean() < 1100


MESSY = {"target": "fate", "on_missing": "impute", "missing_values": "?", "categorical_columns": "rank,deck"}
"""The inputs that `write_messy`'s table needs."""


def write_messy(path: Path, rows: int = 900) -> Path:
    """A table as people have it: texts, flags, empty cells, question marks, codes of two kinds, labels in words.

    Thirty-six harbours come once each, so that train does not know those that fall into the other splits.
    """
    random = np.random.default_rng(0)
    sex, port = random.choice(["male", "female"], rows), random.choice(["Southampton", "Cherbourg", "Cork"], rows)
    age, rank = random.normal(30, 12, rows).round(1), random.choice([1, 2, 3], rows)
    score = 2.4 * (sex == "female") - 1.1 * (rank - 2) - 0.03 * (age - 30) + random.normal(0, 0.7, rows)
    table = pd.DataFrame({"sex": sex, "driver's port": port, "age": age.astype(object), "rank": rank})
    table["alone"], table["fate"] = random.random(rows) < 0.6, np.where(score > 0.6, "survived", "died \u271d")
    for column, share, text in (("sex", 0.02, None), ("age", 0.2, "?"), ("driver's port", 0.05, None)):
        table.loc[random.random(rows) < share, column] = text
    table.loc[::25, "driver's port"] = [f"harbour {number}" for number in range(36)]
    table["deck"] = random.choice(["7", "08", "B", ""], rows)
    table.loc[5::300, "fate"] = None
    path.parent.mkdir(parents=True)
    table.to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_a_table_with_categories_and_missing_values_from_raw_rows_to_labels(tmp_path: Path) -> None:
    import mlflow

    """The same files from any number of nodes, the same model from any number of ranks, the same labels as evaluate."""
    table = write_messy(tmp_path / "table" / "t.csv")
    given = [part for name, value in MESSY.items() for part in (f"--{name.replace('_', '-')}", value)]
    folders = []
    for nodes, processes in ((1, 1), (2, 2)):
        (place := tmp_path / f"on-{nodes}").mkdir()
        ports = ("--output-data", place / "data", "--dataset", "csv", "--data", table.parent, "--rows-per-shard", 100)
        finished = run_component("prepare_data", *ports, *given, folder=place, nodes=nodes, processes=processes)
        assert finished.ok, finished.output
        columns = "numbers: age; categories: sex (3), driver's port (32), rank (3), alone (2), deck (4)"
        assert finished.output.count(columns) == 1
        found = sorted(file for file in (place / "data").rglob("*") if file.is_file())
        folders.append({file.relative_to(place).as_posix(): file.read_bytes() for file in found})
    assert folders[0] == folders[1]
    validation = Dataset.open(tmp_path / "on-1" / "data").split("validation")
    port_codes = validation.take(np.arange(validation.rows))["x"][:, 1]
    assert (port_codes == 0).any(), "a harbour that train does not know"

    data, models = tmp_path / "on-1" / "data", []
    for processes in (1, 4):
        finished, out = train(tmp_path, data, "--epochs", 4, "--batch-size", 64, processes=processes)
        assert finished.ok, finished.output
        models.append(load_file(next((out / "model").rglob("*.safetensors"))))
    assert max(np.abs(models[0][name] - models[1][name]).max() for name in models[0]) < 1e-4

    report, model = tmp_path / "report", tmp_path / "trained-4" / "model"
    ports = ("--data", data, "--model", model, "--report", report)
    finished = run_component("evaluate", *ports, folder=tmp_path)
    assert finished.ok, finished.output
    assert {row["class"] for row in csv.DictReader((report / "classes.csv").open())} == {"died \u271d", "survived"}
    assert json.loads((report / "metrics.json").read_text())["accuracy"] > 0.78

    raw = pd.read_csv(table)
    served = mlflow.pyfunc.load_model(str(model))
    labels = served.predict(raw.drop(columns="fate"))
    assert (labels.prediction == raw.fate).mean() > 0.78
    assert served.predict(raw.assign(sex="of another world", age=None)).probability.between(0.5, 1).all()

    index = (data / "index.json").read_text(encoding="utf-8")
    (data / "index.json").write_text(index.replace('"Cork"', '"Dublin"'), encoding="utf-8")
    misfit = run_component("evaluate", "--data", data, "--model", model, "--report", tmp_path / "no", folder=tmp_path)
    assert misfit.codes == (2,)
    assert "the tables' columns differ in what they were made of: driver's port" in misfit.output


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_every_framework_takes_a_table_with_categories_and_missing_values(tmp_path: Path) -> None:
    import mlflow

    """From the engine's command to the comparison: what comes out is served with the user's own rows and labels."""
    table = write_messy(tmp_path / "table" / "t.csv")
    given = [f"{name}={value}" for name, value in {**MESSY, "epochs": 4, "prepare.rows_per_shard": 100}.items()]
    document = run_json(
        *("compare_frameworks", "dataset=csv", f"data={table.parent}"), *given,
        cwd=tmp_path, TF_CPP_MIN_LOG_LEVEL="3",
    )  # fmt: skip
    steps, raw = document["steps"], pd.read_csv(table)
    assert document["exit"] == 0, {name: step["status"] for name, step in steps.items()}
    comparison = Path(steps["compare"]["outputs"]["report"]) / "comparison.json"
    measured = {model["name"]: model["metrics"]["accuracy"] for model in json.loads(comparison.read_text())["models"]}
    assert len(measured) == 6
    assert min(measured.values()) > 0.78, measured
    for trainer in ("train_horovod", "train_horovod_keras", "train_multiworker", "train_parameter_server"):
        served = mlflow.pyfunc.load_model(steps[trainer]["outputs"]["model"])
        assert (served.predict(raw.drop(columns="fate")).prediction == raw.fate).mean() > 0.78, trainer
        unknown = served.predict(raw.assign(sex="of another world", age=None, deck=8))
        assert unknown.probability.between(0.5, 1).all(), trainer
