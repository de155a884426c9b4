"""The trainers with TensorFlow: the same weights on any number of workers, and models that evaluate takes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from shared.checkpoint.reading import newest_valid_checkpoint
from tests.components.frameworks import run_killed_trainer, run_trainer, weights_of, write_line
from tests.components.launched import launched, run_launched
from tests.components.support import run_component
from tests.components.training import check_times, furthest, write_digits
from tests.faults import fault_code
from tests.helpers import finish
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

SHORT = ("epochs=2", "optimizer=sgd")
"""Inputs of the trainings that several tests share or compare."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), encoded=True)


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_multiworker_is_the_same_on_any_number_of_workers(digits: Path, tmp_path: Path) -> None:
    values = ("epochs=2", "batch_size=60")
    one = weights_of(run_trainer("train_tf_multiworker", digits, tmp_path, "1x1", *values))
    for workers in (3, 4):
        step = run_trainer("train_tf_multiworker", digits, tmp_path, f"{workers}x1", *values)
        check_times(Path(step["outputs"]["metrics"]), ranks=workers)
        assert furthest(one, weights_of(step)) < 1e-5


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_changed_and_mixed_pictures_are_the_same_on_2_workers(digits: Path, tmp_path: Path) -> None:
    changes = ("epochs=1", "crop_padding=1", "rand_augment=1", "mixup=0.4", "cutmix=1")
    runs = [run_trainer("train_tf_multiworker", digits, tmp_path, shape, *changes) for shape in ("1x1", "2x1")]
    check_times(Path(runs[1]["outputs"]["metrics"]), ranks=2)
    assert furthest(*map(weights_of, runs)) < 1e-5


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("shape", "ranks"), [("1x1", 1), ("2x1", 2), ("2x2", 4)])
def test_horovod_with_keras_does_synchronise(shape: str, ranks: int, digits: Path, tmp_path: Path) -> None:
    """`horovod.keras.DistributedOptimizer` does not under Keras 3: each rank would end with weights of its own."""
    whole = run_trainer("train_tf_multiworker", digits, tmp_path, "2x1", *SHORT)
    step = run_trainer("train_horovod_keras", digits, tmp_path, shape, *SHORT)
    check_times(Path(step["outputs"]["metrics"]), ranks=ranks)
    assert furthest(weights_of(whole), weights_of(step)) < 1e-5


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_parameter_server_goes_on_after_a_kill_and_evaluate_takes_its_model(digits: Path, tmp_path: Path) -> None:
    values = ("epochs=8", "checkpoint_every=20", "log_every=10")
    step = run_killed_trainer("train_tf_parameter_server", digits, tmp_path, "2x1", *values, step=50, rank=0)
    assert "continuing from" in step["logs"]
    check_times(Path(step["outputs"]["metrics"]), ranks=1)  # of the coordinator, who waits for the workers
    model, report = step["outputs"]["model"], tmp_path / "report"
    done = run_component("evaluate", "--data", digits, "--model", model, "--report", report, folder=tmp_path)
    assert done.ok, done.output
    assert json.loads((report / "metrics.json").read_text())["accuracy"] >= 0.93


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_parameter_server_takes_a_regression(tmp_path: Path) -> None:
    line = write_line(tmp_path / "line")
    step = run_trainer(
        "train_tf_parameter_server", line, tmp_path, "2x1", "epochs=30", "log_every=10", "weight_decay=0"
    )
    assert step["metrics"]["validation_r2"] > 0.9


@pytest.mark.timeout(600)
@pytest.mark.parametrize("architecture", ["mlp", pytest.param("resnet", marks=pytest.mark.exhaustive)])
def test_a_saved_model_is_served_by_mlflow_without_pickle(architecture: str, digits: Path, tmp_path: Path) -> None:
    import mlflow

    from shared.models.predictor import load_predictor

    options = {"epochs": 1, "architecture": architecture}
    run_launched("train_tf_multiworker", digits, tmp_path, options, count=1)
    check_times(tmp_path / "metrics", ranks=1)
    folder = tmp_path / "model"
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".keras", ".h5")]
    predict, card = load_predictor(folder, "cpu")
    rows = np.zeros((3, *card.input_shape), card.input_dtype)
    assert np.allclose(mlflow.pyfunc.load_model(str(folder)).predict(rows), predict(rows), atol=1e-6)


OWN = """
import keras
from size import WIDTH

def build(input_shape, num_outputs):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(WIDTH, "tanh"),
        keras.layers.BatchNormalization(momentum=0.7), keras.layers.Dense(num_outputs)])
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_a_regression_with_a_model_of_ones_own(tmp_path: Path, exhaustive: bool) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text(OWN)
    (tmp_path / "code" / "size.py").write_text("WIDTH = 24\n")
    line = write_line(tmp_path / "line")
    values = ("architecture=own.py:build", f"model_code={tmp_path / 'code'}", "epochs=12", "weight_decay=0")
    components = ("train_tf_multiworker", "train_horovod_keras") if exhaustive else ("train_tf_multiworker",)
    runs = {component: run_trainer(component, line, tmp_path, "2x1", *values) for component in components}
    one, *others = (weights_of(step) for step in runs.values())
    for other in others:
        assert furthest(one, other) < 1e-5, "both keep to the order of the rows and to the global batch"
    model, report = runs[components[-1]]["outputs"]["model"], tmp_path / "report"
    evaluated = ("--data", line, "--model", model, "--report", report, "--split", "validation")
    done = run_component("evaluate", *evaluated, folder=tmp_path)
    assert done.ok, done.output
    measured = json.loads((report / "metrics.json").read_text())["r2"]
    assert measured > 0.9
    for component, step in runs.items():  # each rank's batch normalization has seen other rows; rank 0's is saved
        assert step["metrics"]["validation_r2"] == pytest.approx(measured, abs=1e-5), component


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("component", ["train_tf_multiworker", "train_horovod_keras"])
def test_a_compiled_transformer_is_the_same_on_two_ranks(component: str, digits: Path, tmp_path: Path) -> None:
    values = ("architecture=vit", "precision=fp64", "epochs=1", "batch_size=128")
    plain = run_trainer(component, digits, tmp_path, "1x1", *values)
    compiled = run_trainer(component, digits, tmp_path, "2x1", *values, "compile=true")
    assert furthest(weights_of(plain), weights_of(compiled)) < 1e-9


@pytest.mark.timeout(600)
@pytest.mark.parametrize("asked", ["a server", pytest.param("a worker", marks=pytest.mark.exhaustive)])
def test_whichever_process_is_asked_to_stop_the_coordinator_saves(asked: str, tmp_path: Path) -> None:
    line, out, reached = write_line(tmp_path / "line"), tmp_path / "out", tmp_path / "reached"
    options = {"epochs": 10_000, "batch_size": 16, "checkpoint_every": 20, "log_every": 10}
    note = fault_code("nothing", 30, 0, once=reached)
    with launched("train_tf_parameter_server", line, out, options, before=note) as ranks:
        wait_for(reached.exists, [rank.process for rank in ranks])
        ranks[2 if asked == "a server" else 1].kill(signal.SIGTERM)
        results = finish(ranks)
    codes = [143, 0, 143] if asked == "a server" else [143, 143, 0]
    assert [result.returncode for result in results] == codes, results[0].stderr
    stopped = int(results[0].stdout.split("stopped by SIGTERM after step ")[1].split(";")[0])
    newest = newest_valid_checkpoint(out / "checkpoints")
    assert int(newest.name[5:]) == stopped
