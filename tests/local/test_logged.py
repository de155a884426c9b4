"""What a script logs with MLflow is seen wherever metrics.jsonl is: on a terminal, in runs show, as JSON, on the page."""

from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path

import pytest

import allranks
from allranks.cli.sparklines import draw_sparkline, draws_blocks
from allranks.local.folders import RunsHome
from allranks.local.logged import LoggedFiles, read_logged_values, read_metric_curves
from allranks.local.metrics_file import metrics_document
from allranks.local.tracking.jobs import JobRuns
from allranks.local.tracking.points import log_batch
from allranks.local.tracking.reading import TrackingReader
from allranks.local.tracking.store import TrackingStore
from tests.cli.test_terminal import on_a_terminal
from tests.local.support import allranks as call
from tests.local.support import pipeline, run_json, start_allranks, step
from tests.waiting import wait_for

TOKEN = "hf_" + "aB3" * 12

CLIENT = """\
import json, os, urllib.request
def post(what, **fields):
    body = json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **fields}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    address = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + what
    return json.loads(urllib.request.urlopen(urllib.request.Request(address, body, headers)).read())
"""
"""A client of the same service that starts in no time; the slow test below has MLflow itself."""

LOGGING = f"""{CLIENT}
import pathlib, sys
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/metrics.jsonl").write_text('{{"step": 1, "metrics": {{"both": 1.5}}}}\\n')
for count in range(1, 5):
    post("log-metric", key="loss", value=1 / count, step=count, timestamp=count)
    post("log-metric", key="both", value=9, step=count, timestamp=count)
post("log-metric", key="odd", value="NaN", timestamp=1)
post("log-metric", key="far", value="-Infinity", timestamp=1)
post("log-parameter", key="optimizer", value="sgd\x1b[1m <fast>")
post("log-parameter", key="api_key", value="abc")
post("set-tag", key="origin", value="{TOKEN}")
post("set-tag", key="mlflow.source.name", value="train.py")
"""


def written(folder: Path, script: str = LOGGING, command: str = "python train.py", **more: str) -> Path:
    (folder / "code").mkdir()
    (folder / "code/train.py").write_text(script)
    return pipeline(folder, f"type: pipeline\njobs: {{train: {step(command, more='code: ./code', **more)}}}\n")


def strict(text: str) -> dict[str, object]:
    """JSON as others read it: NaN is no number there."""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_was_logged_is_in_every_view_and_of_a_reused_step_too(tmp_path: Path) -> None:
    written(tmp_path, outputs="out: {type: uri_folder}")
    for reused in (False, True):
        done = call("run", "pipeline.yaml", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        train = strict(done.stdout)["steps"]["train"]  # type: ignore[index]
        assert train["reused"] is reused
        assert train["metrics"] == {"both": 1.5, "loss": 0.25, "odd": "NaN", "far": "-Infinity"}
        assert train["params"] == {"optimizer": "sgd\x1b[1m <fast>", "api_key": "***"}
        assert train["tags"] == {"origin": "***"}
        assert strict(call("runs", "show", "latest", "--json", cwd=tmp_path).stdout)["steps"]["train"] == train  # type: ignore[index]
        shown = call("runs", "show", "latest", cwd=tmp_path).stdout
        assert "both=1.5 far=-Infinity loss=0.25 odd=NaN" in shown
        assert re.search(r"train\.optimizer +sgd \[1m <fast>\n", shown)
        page = max(tmp_path.glob(".allranks/runs/*/report.html")).read_text()
        assert re.findall(r'aria-label="([^"]* over steps)"', page) == ["loss over steps"], "both has one value"
        assert "<td>optimizer</td><td>sgd\x1b[1m &lt;fast&gt;</td>" in page
        assert TOKEN not in page + shown + done.stdout
    past = allranks.load_run("latest", runs_dir=tmp_path / ".allranks").steps["train"]
    assert math.isnan(past.metrics["odd"])
    assert past.metrics["far"] == -math.inf
    assert past.params["optimizer"] == "sgd\x1b[1m <fast>"


@pytest.mark.slow
def test_the_table_and_runs_show_see_it_while_it_runs(tmp_path: Path) -> None:
    """In a terminal, and in another one meanwhile."""
    os.mkfifo(tmp_path / "go")
    script = f"{CLIENT}\npost('log-metric', key='loss', value=0.125)\npost('log-metric', key='later', value=7)\n"
    written(tmp_path, f"{script}open('{tmp_path}/go').read()\n")
    run = start_allranks("run", "pipeline.yaml", cwd=tmp_path)

    def shown() -> str:
        found = call("runs", "show", "latest", cwd=tmp_path).stdout
        return found if "later=7" in found else ""

    try:
        assert "loss=0.125" in wait_for(shown, [run])
    finally:
        (tmp_path / "go").write_text("")
        assert run.wait() == 0
    (tmp_path / "code/train.py").write_text(f"{script}open('{tmp_path}/shown').readline()\n")
    screen = on_a_terminal(100, tmp_path, "run", "pipeline.yaml", shows=r"train +running .*loss 0\.125")
    assert re.search(r"train: succeeded, .*loss 0\.125", screen)


def test_a_sweep_shows_its_best_trial(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    post = "post('log-metric', key='m', value=float(sys.argv[1]) * count, step=count, timestamp=count)"
    lines = f"import sys\nfor count in (1, 2):\n    {post}\npost('log-parameter', key='x', value=sys.argv[1])\n"
    (tmp_path / "code/train.py").write_text(f"{CLIENT}{lines}")
    pipeline(
        tmp_path,
        """
        type: pipeline
        jobs:
          tune:
            type: sweep
            trial:
              type: command
              code: ./code
              command: python train.py ${{inputs.x}}
              environment: azureml:any:1
              inputs: {x: {type: number}}
            sampling_algorithm: grid
            search_space: {x: {type: choice, values: [1, 3, 2]}}
            objective: {goal: maximize, primary_metric: m}
            limits: {max_total_trials: 3, max_concurrent_trials: 2}
        """,
    )
    for _ in range(2):  # executed, and reused
        tune = run_json("pipeline.yaml", cwd=tmp_path)["steps"]["tune"]
        assert (tune["best_trial"], tune["metrics"], tune["params"]) == (1, {"m": 6.0}, {"x": "3"})
        page = max(tmp_path.glob(".allranks/runs/*/report.html")).read_text()
        assert "m 6</span></figcaption>" in page, "the curve of the best trial"


@pytest.fixture
def home(tmp_path: Path) -> RunsHome:
    home = RunsHome(tmp_path / "home")
    home.prepare()
    return home


def logged(home: RunsHome, **metrics: list[tuple[float, float | str]]) -> str:
    """A run with these values of each metric, each with its step."""
    jobs = JobRuns(home, "r1", "digits", "digits")
    jobs.begin()
    run_id = jobs.begin_step("train")
    points = [
        {"key": name, "value": value, "step": int(number), "timestamp": 1000 + index}
        for name, values in metrics.items()
        for index, (number, value) in enumerate(values)
    ]
    log_batch(TrackingStore(home), {"run_id": run_id, "metrics": points})
    return run_id


def test_values_without_a_step_are_counted_and_those_out_of_order_sorted(home: RunsHome) -> None:
    run_id = logged(
        home, plain=[(0, 3), (0, 2), (0, 1)], late=[(5, 1), (2, 4)], odd=[(1, "NaN"), (2, 7), (3, "Infinity")]
    )
    folder = home.run("r1").step("train")
    folder.metrics().parent.mkdir(parents=True)
    folder.metrics().write_text('{"step": 9, "metrics": {"late": 8}}\n')
    with TrackingReader(home) as reader:
        curves = read_metric_curves(LoggedFiles(folder), run_id, reader)
        assert curves == {"late": [(9, 8)], "odd": [(2, 7)], "plain": [(1, 3), (2, 2), (3, 1)]}
        folder.metrics().unlink()
        assert read_metric_curves(LoggedFiles(folder), run_id, reader)["late"] == [(2, 4), (5, 1)]
        assert read_logged_values(LoggedFiles(folder), run_id, reader).metrics["late"] == 1, (
            "the last is that of the highest step"
        )
        folder.metrics().write_text(f'{{"step": 1{"0" * 400}, "metrics": {{"a": 1{"0" * 400}, "b": -1{"0" * 300}}}}}\n')
        assert read_metric_curves(LoggedFiles(folder), None, reader) == {}
        assert metrics_document(read_logged_values(LoggedFiles(folder), None, reader).metrics) == {"b": -(10**300)}
        folder.metrics().unlink()
        assert read_logged_values(LoggedFiles(folder), None, reader).metrics == {}


def test_a_curve_is_drawn_of_whatever_is_finite_and_in_letters_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for values in ([0.0], [1e308, -1e308], [5e-324, 1.0], [3.0] * 100, [1.0, 1.0 + 2**-52]):
        assert 1 <= len(draw_sparkline(values, 40)) <= 40
    assert draw_sparkline([1, 2, 3], 2) == "▁█"
    assert draw_sparkline([10.0**-number for number in range(8)], 8) == "█▇▆▅▄▃▂▁", "logarithmic, as the page"
    monkeypatch.setenv("TERM", "linux")
    draws_blocks.cache_clear()
    try:
        assert draw_sparkline(range(8), 8) == "_.-~=+*#"
    finally:
        draws_blocks.cache_clear()


PLAIN = """
import sys

learning_rate, epochs = float(sys.argv[1]), int(sys.argv[2])
log_param("learning_rate", learning_rate)

weight = 5.0
for epoch in range(epochs):
    weight -= learning_rate * 2 * (weight - 1.0)
    log_metric("loss", (weight - 1.0) ** 2, step=epoch)
"""
MLFLOW = "from mlflow import log_metric, log_param\n"
LIGHT = f"""{CLIENT}
def log_param(key, value): post("log-parameter", key=key, value=str(value))
def log_metric(key, value, step): post("log-metric", key=key, value=value, step=step, timestamp=step)
"""


@pytest.mark.parametrize(
    "client", [LIGHT, pytest.param(MLFLOW, marks=[pytest.mark.slow, pytest.mark.exhaustive])], ids=["light", "mlflow"]
)
def test_a_plain_script_has_the_same_curve_in_every_view(client: str, tmp_path: Path) -> None:
    last, exact = f"{16 * 0.64**20:.4g}", f"{16 * 0.64**20:.6g}"
    written(tmp_path, f"{client}{PLAIN}open('{tmp_path}/shown').readline()\n", "python train.py 0.1 20")
    row = rf"train +running .* ([▁▂▃▄▅▆▇█]{{20}})  loss {re.escape(last)}"
    while_it_ran = re.findall(row, on_a_terminal(100, tmp_path, "run", "pipeline.yaml", shows=row))
    shown = call("runs", "show", "latest", cwd=tmp_path).stdout
    assert f"curves\n  train.loss  {while_it_ran[-1]}  {exact}\n" in shown
    page = next(tmp_path.glob(".allranks/runs/*/report.html")).read_text()
    line = re.search(r'<polyline class="c0" points="([^"]*)"', page)
    assert line is not None
    assert f"</i>loss {last}" in page
    heights = [float(pair.split(",")[1]) for pair in line[1].split()]
    found = strict(call("runs", "show", "latest", "--json", cwd=tmp_path).stdout)["steps"]["train"]  # type: ignore[index]
    curve = found["curves"]["loss"]
    assert curve == [[epoch, pytest.approx(16 * 0.64 ** (epoch + 1))] for epoch in range(20)]
    assert found["metrics"]["loss"] == curve[-1][1]
    drop = (heights[-1] - heights[0]) / math.log(curve[0][1] / curve[-1][1])  # the axis is logarithmic
    assert heights == pytest.approx([heights[0] + drop * math.log(curve[0][1] / y) for _, y in curve], abs=0.2)
    assert found["params"] == {"learning_rate": "0.1"}
