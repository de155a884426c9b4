"""The main job end to end on real data: what the README promises, as a user would check it."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.faults import arm
from tests.local.support import allranks, carrying, command, environ, run_json
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose runs share one cache, so that the data is prepared once."""
    return tmp_path_factory.mktemp("home")


def weights(step: dict[str, Any]) -> dict[str, np.ndarray]:
    """All tensors of a step's model."""
    files = list(Path(step["outputs"]["model"]).rglob("*.safetensors"))
    assert len(files) == 1
    return load_file(files[0])


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name].astype("f8") - other[name].astype("f8")).max()) for name in one)


def predictions(run: dict[str, Any]) -> list[str]:
    """The predicted class of every test row, in the order of the rows."""
    with (Path(run["steps"]["evaluate"]["outputs"]["report"]) / "predictions.csv").open() as file:
        return [row["prediction"] for row in csv.DictReader(file)]


MAIN = ("image_classification", "--scale", "evaluate=1x1")
ALONE = ("--scale", "train=1x1", "--scale", "evaluate=1x1")


@pytest.fixture(scope="module")
def main_job(home: Path) -> dict[str, Any]:
    return run_json(*MAIN, cwd=home)


@pytest.mark.slow
def test_the_main_job_reaches_its_accuracy_on_two_nodes_of_two_ranks(main_job):
    assert main_job["exit"] == 0, main_job
    train, evaluate = main_job["steps"]["train"], main_job["steps"]["evaluate"]
    assert (train["nodes"], train["processes"]) == (2, 2)
    assert evaluate["metrics"]["accuracy"] >= 0.97
    report = Path(evaluate["outputs"]["report"])
    measured = json.loads((report / "metrics.json").read_text())
    predicted = predictions(main_job)
    assert measured["accuracy"] == evaluate["metrics"]["accuracy"]
    assert len(predicted) == 360
    for name in ("index.html", "confusion_matrix.png", "roc.png"):
        assert (report / name).stat().st_size > 1000
    page = (report / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert (home_of(main_job) / "tracking.db").is_file()


def home_of(run: dict[str, Any]) -> Path:
    return Path(run["run_dir"]).parents[1]


@pytest.mark.slow
def test_the_same_again_is_reused_and_says_where_everything_is(main_job, home):
    done = allranks("run", *MAIN, cwd=home)
    assert done.returncode == 0
    assert "3 of 3 steps reused" in done.stdout
    for words in ("accuracy", "4 ranks, 2 nodes x 2", "model", "index.html", "user_logs"):
        assert words in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/components/test_train_ddp.py has one and four ranks in every run
def test_the_number_of_ranks_does_not_change_the_result(main_job, home):
    reference = run_json("image_classification", *ALONE, cwd=home)
    others = (
        ("image_classification", "1x2"),
        ("image_classification", "2x1"),
        ("image_classification_torchrun", "2x2"),
    )
    runs = [run_json(name, "--scale", f"train={scale}", "--scale", "evaluate=1x1", cwd=home) for name, scale in others]
    for run in (main_job, *runs):
        assert run["exit"] == 0, run
        assert largest_difference(weights(reference["steps"]["train"]), weights(run["steps"]["train"])) < 1e-5
        assert predictions(run) == predictions(reference)


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", ["resnet", "vit"])
def test_in_float64_larger_models_agree_to_nine_digits(home, architecture):
    values = ("epochs=2", f"architecture={architecture}", "precision=fp64", "--steps", "train")
    one = run_json("image_classification", *values, "--scale", "train=1x1", cwd=home)
    four = run_json("image_classification", *values, "--scale", "train=2x2", cwd=home)
    assert one["exit"] == four["exit"] == 0, (one, four)
    assert largest_difference(weights(one["steps"]["train"]), weights(four["steps"]["train"])) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["1x1", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("1x2", "2x2"))])
def test_a_training_whose_rank_and_then_whose_engine_is_killed_ends_with_the_same_bits(home, tmp_path, scale):
    arguments = ("image_classification", "epochs=4", "--scale", f"train={scale}", "--steps", "train")
    often, last = "train.checkpoint_every=7", int(scale[0]) * int(scale[2]) - 1
    died = run_json(*arguments, often, "--retries", "0", cwd=tmp_path, **arm(tmp_path / "first", "SIGKILL", 30, last))
    assert died["exit"] == 1, died
    variables = environ(**arm(tmp_path / "second", "hang", 60, last))
    engine = subprocess.Popen(command("run", *arguments, often), cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL)
    wait_for((tmp_path / "second" / "happened").exists, [engine])
    engine.kill()
    engine.wait()
    wait_for(lambda: not carrying(str(tmp_path / ".allranks")))
    resumed = run_json(*arguments, often, cwd=tmp_path)
    assert resumed["exit"] == 0, resumed
    log = (Path(resumed["steps"]["train"]["folder"]) / "user_logs/std_log_process_0.txt").read_text()
    assert "continuing from" in log, log
    whole = run_json(*arguments, cwd=home)
    before, after = weights(whole["steps"]["train"]), weights(resumed["steps"]["train"])
    assert all(np.array_equal(before[name].view(np.uint8), after[name].view(np.uint8)) for name in before)


OWN_MODEL = """
from torch import nn

def build(input_shape, num_outputs):
    channels, height, width = input_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 32), nn.Tanh(), nn.Linear(32, num_outputs))
"""

UNSAVEABLE = """
from torch import nn

class Odd(nn.Linear):
    def state_dict(self, *args, **kwargs):
        return {"weight": "not a tensor"}

def build(input_shape, num_outputs):
    size = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(nn.Flatten(), Odd(size, num_outputs))
"""


@pytest.mark.slow
def test_a_model_of_the_users_own_trains_without_a_change_to_the_library(home, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/net.py").write_text(OWN_MODEL)
    values = ("epochs=5", "architecture=net.py:build", f"model_code={tmp_path / 'mine'}")
    run = run_json("image_classification", *values, "--scale", "train=1x1", "--steps", "train", cwd=home)
    assert run["exit"] == 0, run
    assert run["steps"]["train"]["metrics"]["validation_accuracy"] > 0.8


@pytest.mark.slow
def test_a_model_that_cannot_be_saved_is_refused_before_the_first_step(home, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/net.py").write_text(UNSAVEABLE)
    run = run_json(
        "image_classification", "architecture=net.py:build", f"model_code={tmp_path / 'mine'}", *ALONE, cwd=home
    )
    assert run["exit"] == 1
    lines = "\n".join(run["steps"]["train"]["failure"]["last_lines"])
    assert "saved" in lines
    assert "Traceback" not in lines
    assert "loss" not in lines, "it had begun to train"


@pytest.mark.slow
def test_a_batch_that_the_ranks_do_not_divide_is_refused_once_with_the_arithmetic(home):
    run = run_json("image_classification", "batch_size=63", "--scale", "train=2x2", cwd=home)
    assert run["exit"] == 1
    text = "\n".join(path.read_text() for path in Path(run["steps"]["train"]["folder"], "user_logs").iterdir())
    assert text.count("error:") == 1
    assert "63" in text
    assert "4 ranks" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_by_name_by_yaml_and_by_python_the_plan_is_the_same(home):
    root = Path(__file__).parents[1] / "pipelines"
    targets = (
        "image_classification",
        root / "image_classification.yaml",
        f"{root}/image_classification.py:image_classification",
    )
    plans = [run_json(target, "--dry-run", "--runs-dir", home / "nothing", cwd=home) for target in targets]
    assert plans[0]["exit"] == 0
    assert plans[0] == plans[1]
    for plan in plans:  # the place in a file is the file's own
        for step in plan["steps"].values():
            step["input_sources"] = {port: source["kind"] for port, source in step["input_sources"].items()}
    assert plans[0] == plans[2]
