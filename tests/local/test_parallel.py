"""Parallel steps with real workers: order of results, limits of failures, retries, what is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from allranks.local.folders import RunsHome
from allranks.local.parallel import worker
from allranks.local.parallel.coordinator import BatchCoordinator, StepFailedError, run_order
from allranks.local.parallel.plan import BatchRules
from tests.cli.conftest import cli  # noqa: F401 a fixture
from tests.local.support import ROOT, allranks, carrying, pipeline, run_json, start_allranks, step
from tests.waiting import wait_for

SCORE = """
    import os, signal, sys
    from pathlib import Path

    def init():
        print("init", sys.argv[1:], os.environ["AZ_BATCHAI_NODE_IP"], Path.cwd())

    def run(mini_batch):
        return [f"{Path(path).name} {Path(path).read_text().strip()}" for path in mini_batch]
"""


def project(folder: Path, script: str = SCORE, *, files: int = 7) -> Path:
    """A folder with an entry script, and as many files, of which f00 holds 0."""
    (folder / "src").mkdir()
    (folder / "src" / "score.py").write_text(textwrap.dedent(script))
    (folder / "data").mkdir()
    for number in range(files):
        (folder / "data" / f"f{number:02}").write_text(f"{number}\n")
    return folder


def parallel(**changes: object) -> dict:
    """A parallel step with its task in place; None takes a key out, and ``task_…`` changes the task."""
    document: dict = {
        "type": "parallel",
        "inputs": {"files": {"type": "uri_folder", "path": "./data"}},
        "outputs": {"out": {"type": "uri_file"}},
        "input_data": "${{inputs.files}}",
        "mini_batch_size": "2",
        "max_concurrency_per_instance": 2,
        "task": {
            "type": "run_function",
            "code": "./src",
            "entry_script": "score.py",
            "environment": "azureml:whatever:1",
            "append_row_to": "${{outputs.out}}",
        },
    }
    for key, value in changes.items():
        place = document["task"] if key.startswith("task_") else document
        place[key.removeprefix("task_")] = value
        if value is None:
            del place[key.removeprefix("task_")]
    return document


def jobs(folder: Path, **steps: object) -> Path:
    lines = [f"  {name}: {text if isinstance(text, str) else json.dumps(text)}\n" for name, text in steps.items()]
    return pipeline(folder, "type: pipeline\nname: scoring\njobs:\n" + "".join(lines))


def step_folder(home: Path, result: dict, name: str = "score") -> Path:
    return RunsHome(home / ".allranks").run(result["run_id"]).step(name).path


LAST_FIRST = SCORE.replace(
    "return",
    """done, first = Path(os.environ["DONE"]), Path(mini_batch[0]).name
        if first == "f00":
            from tests.waiting import wait_for
            wait_for(lambda: len(os.listdir(done)) == 3)
        (done / first).touch()
        return""",
)


def test_results_stand_in_the_order_of_the_mini_batches_whoever_was_faster(tmp_path):
    (tmp_path / "done").mkdir()
    changes = {
        "resources": {"instance_count": 2},
        "environment_variables": {"DONE": str(tmp_path / "done"), "PYTHONPATH": str(ROOT)},
    }
    file = jobs(
        project(tmp_path, LAST_FIRST),
        score=parallel(task_program_arguments="--model 'a  b' --flag", **changes),
        use=step("wc -l < ${{inputs.x}}", inputs="x: '${{parent.jobs.score.outputs.out}}'"),
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 0
    score = result["steps"]["score"]
    assert (score["nodes"], score["processes"]) == (2, 2)
    assert score["metrics"] == {"mini_batches": 4, "failed_mini_batches": 0, "items": 7, "failed_items": 0}
    assert Path(score["outputs"]["out"]).read_text() == "".join(f"f{n:02} {n}\n" for n in range(7))
    logs = sorted((step_folder(tmp_path, result) / "user_logs").glob("std_log_process_*.txt"))
    texts = [log.read_text() for log in logs]
    assert len(texts) == 4
    assert all("'--mini_batch_size', '2'" in text and "'--model', 'a  b', '--flag']" in text for text in texts)
    assert ["127.0.0.1" in text for text in texts] == [True, False, True, False]  # a node is a folder and an address
    assert ["nodes/1/work" in text for text in texts] == [False, True, False, True]
    again = run_json(file, cwd=tmp_path)
    assert again["steps"]["score"]["reused_from"] == result["run_id"]
    shown = allranks("run", file, "--dry-run", "--json", cwd=tmp_path)
    rules = json.loads(shown.stdout)["steps"]["score"]["parallel"]
    assert (rules["size"], rules["max_retries"], rules["run_timeout"], rules["error_threshold"]) == (2, 2, 60, -1)


FAULTY = """
    import os, signal, sys
    from pathlib import Path

    def init(): pass

    def hang(mini_batch):
        Path(os.environ["SEEN"], f"{{Path(mini_batch[0]).name}}-{{os.getpid()}}").touch()
        while True:
            signal.pause()

    def run(mini_batch):
        seen = Path(os.environ["SEEN"], Path(mini_batch[0]).name)
        with seen.open("a") as file:
            file.write("x")
        tries = len(seen.read_text())
        number = int(Path(mini_batch[0]).read_text())
        {code}
        return list(map(os.path.basename, mini_batch))
"""


@dataclass(frozen=True)
class Trouble:
    """A step of seven mini batches of one file each that go wrong, and what comes of it.

    Attributes:
        code: in ``run()``; it knows the ``number`` in the file, and how many ``tries`` there were.
        why: what the failure of the step says; empty where it succeeds.
        tries: calls of ``run()`` for each mini batch.
        left_out: numbers of the files that are not in the output.
        metrics: of the step.
        changes: of the step's document.
        script: the entry script, where it is not ``FAULTY`` with the code.
    """

    code: str = ""
    why: str = ""
    tries: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()
    metrics: dict[str, int] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    script: str = ""


NO = "raise ValueError('no')"
RETRIED = {"retry_settings": {"max_retries": 2, "timeout": 60}, "max_concurrency_per_instance": 2}
ONCE = {"retry_settings": {"max_retries": 0, "timeout": 60}}
TROUBLES = {
    "raises": Trouble(
        "if number == 3 and tries < 3: raise ValueError('later')",
        tries=(1, 1, 1, 3, 1, 1, 1),
        metrics={"retries": 2},
        changes=RETRIED,
    ),
    "killed": Trouble(
        "if number == 3 and tries < 3: os.kill(os.getpid(), 9)",
        tries=(1, 1, 1, 3, 1, 1, 1),
        metrics={"retries": 2},
        changes=RETRIED,
    ),
    "left_out": Trouble(
        "if number in (2, 5): raise ValueError('never')",
        tries=(1, 1, 2, 1, 1, 2, 1),
        left_out=(2, 5),
        metrics={"failed_mini_batches": 2},
        changes={"retry_settings": {"max_retries": 1}, "mini_batch_error_threshold": 2},
    ),
    "nobody_counts_items": Trouble(
        "return []",
        tries=(1,) * 7,
        metrics={"failed_items": 0},
        changes={"task_append_row_to": None, "outputs": None, "mini_batch_error_threshold": 0, "error_threshold": -1},
    ),
    "too_many_batches": Trouble(
        NO, "mini_batch_error_threshold is 1", changes=ONCE | {"mini_batch_error_threshold": 1}
    ),
    "all_batches": Trouble(NO, "all 7 mini batches have failed", changes=ONCE),
    "too_many_items": Trouble(
        "return []", "4 items have failed, and error_threshold is 3", changes={"error_threshold": 3}
    ),
    "no_items": Trouble("return []", "there is no succeeded mini batch item returned from run()"),
    "a_text": Trouble("return 'text'", "run() returned a str", changes=ONCE),
    "too_many_percent": Trouble(
        "if number < 3: raise ValueError('no')",
        "3 of 7 mini batches have failed, and allowed_failed_percent is 30",
        changes=ONCE | {"task_program_arguments": "--allowed_failed_percent 30"},
    ),
    "no_model": Trouble(
        script="def init(): raise SystemExit('no model')\ndef run(mini_batch): return mini_batch\n", why="no model"
    ),
    "no_init": Trouble(script="def run(mini_batch): return mini_batch\n", why="score.py has no function init()"),
    "dies_in_init": Trouble(
        script="import os\ndef init(): os.kill(os.getpid(), 9)\ndef run(mini_batch): return mini_batch\n",
        why="was killed by SIGKILL, before init() had returned",
    ),
}


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """One run with a step for each of ``TROUBLES``, and its folder, with the calls of ``run()`` in ``seen``."""
    folder, steps = project(tmp_path_factory.mktemp("troubled")), {}
    for name, trouble in TROUBLES.items():
        for place in (folder / name, folder / "seen" / name):
            place.mkdir(parents=True)
        (folder / name / "score.py").write_text(textwrap.dedent(trouble.script or FAULTY.format(code=trouble.code)))
        variables = {"SEEN": str(folder / "seen" / name)}
        changes = {"task_code": f"./{name}", "environment_variables": variables, **trouble.changes}
        steps[name] = parallel(mini_batch_size="1", **{"max_concurrency_per_instance": 1, **changes})
    return folder, run_json(jobs(folder, **steps), cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
def test_mini_batches_that_fail_are_tried_again_left_out_or_fail_the_step(troubled, name):
    (folder, result), trouble = troubled, TROUBLES[name]
    score = result["steps"][name]
    assert score["status"] == ("failed" if trouble.why else "succeeded"), score
    assert trouble.why in "\n".join(score["failure"]["last_lines"] if trouble.why else [""])
    assert {key: score["metrics"].get(key) for key in trouble.metrics} == trouble.metrics
    if trouble.tries:
        tries = tuple(len(path.read_text()) for path in sorted((folder / "seen" / name).iterdir()))
        assert tries == trouble.tries
    if not trouble.why and "out" in score["outputs"]:
        written = Path(score["outputs"]["out"]).read_text()
        assert written == "".join(f"f0{number}\n" for number in range(7) if number not in trouble.left_out)
    assert carrying(f"AZUREML_ROOT_RUN_ID={result['run_id']}") == []


ONCE_TOO_SLOW = (
    "if number == 1 and not (seen.parent / 'slow').exists(): (seen.parent / 'slow').touch(); hang(mini_batch)"
)


@pytest.mark.parametrize(
    ("code", "retries", "said"),
    [
        (
            ONCE_TOO_SLOW,
            1,
            "finished: mini_batches 3, failed_mini_batches 0, items 3, failed_items 0, retries 1, timeouts 1",
        ),
        (
            "hang(mini_batch)",
            0,
            "failed: all 3 mini batches have failed; 3 calls of run() took longer than retry_settings.timeout = 60 s: raise it",
        ),
    ],
)
def test_a_call_that_takes_too_long_is_ended(tmp_path, monkeypatch, capsys, code, retries, said):
    """The coordinator runs here, with a clock that goes on while a call hangs."""
    project(tmp_path, FAULTY.format(code=code), files=3)
    (tmp_path / "hung").mkdir()
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    place = {"number": 0, "cwd": str(tmp_path / "src"), "log": str(tmp_path / "log")}
    order = {
        "rules": BatchRules("files", "uri_folder", 1, -1, -1, retries, 60.0, "INFO", "").document(),
        "input": str(tmp_path / "data"),
        "append_to": str(tmp_path / "out"),
        "folder": str(tmp_path),
        "program": worker.__file__,
        "worker": {"entry_script": "score.py", "arguments": [], "header": False, "logging_level": "INFO"},
        "workers": [{**place, "variables": {"PATH": path, "SEEN": str(tmp_path / "hung")}}],
    }
    seconds = [0.0]

    def clock() -> float:
        hung = [path.name.partition("-")[2] for path in (tmp_path / "hung").glob("*-*")]
        seconds[0] += 50.0 * any(Path("/proc", pid).exists() for pid in hung)
        return seconds[0]

    try:
        run_order(order, clock)
    except StepFailedError as error:
        print("failed:", error)
    assert said in capsys.readouterr().out
    assert not retries or (tmp_path / "out").read_text() == "f00\nf01\nf02\n"


def test_the_first_failure_too_many_ends_the_step_and_a_second_one_is_not_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    rules = BatchRules("files", "uri_folder", 1, -1, 0, 0, 60.0, "INFO", "")
    coordinator = BatchCoordinator(rules, [["a"], ["b"]], tmp_path, [], tmp_path, {})
    failed = {"what": "failed", "error": "no"}
    failing: Any = SimpleNamespace(heard=lambda: [failed, failed], batch=0)
    with pytest.raises(StepFailedError, match=r"^1 mini batch has failed, and mini_batch_error_threshold is 0"):
        coordinator._listen(failing, has_died=False)


def test_nothing_outlives_an_engine_that_is_killed_and_the_next_start_begins_anew(tmp_path):
    (tmp_path / "seen").mkdir()
    text = parallel(mini_batch_size="1", environment_variables={"SEEN": str(tmp_path / "seen")})
    file = jobs(
        project(tmp_path, FAULTY.format(code="if number > 2 and 'GO' not in os.environ: hang(mini_batch)")), score=text
    )
    engine = start_allranks("run", file, cwd=tmp_path)
    try:
        wait_for((tmp_path / "seen" / "f04").exists, [engine])
        run_id = RunsHome(tmp_path / ".allranks").all_runs()[-1].id
        assert len(carrying(f"AZUREML_ROOT_RUN_ID={run_id}")) >= 3  # the coordinator and two workers
    finally:
        engine.kill()
        engine.wait()
    wait_for(lambda: carrying(f"AZUREML_ROOT_RUN_ID={run_id}") == [])
    result = run_json(file, cwd=tmp_path, GO="1")
    assert result["exit"] == 0
    assert [len(path.read_text()) for path in sorted((tmp_path / "seen").glob("f??"))] == [2, 2, 2, 2, 2, 1, 1]


def test_ctrl_c_ends_the_workers(tmp_path):
    file = jobs(project(tmp_path, SCORE.replace("return", "signal.pause(); return")), score=parallel())
    engine = start_allranks("run", file, cwd=tmp_path)
    runs = RunsHome(tmp_path / ".allranks")
    log = wait_for(lambda: runs.all_runs() and runs.all_runs()[-1].step("score").log(1), [engine])
    wait_for(lambda: log.is_file() and "init" in log.read_text(), [engine])
    engine.send_signal(signal.SIGINT)
    assert engine.wait() == 130
    assert carrying(f"AZUREML_ROOT_RUN_ID={runs.all_runs()[-1].id}") == []


def test_an_mltable_of_files_is_a_list_of_paths(tmp_path):
    project(tmp_path)
    (tmp_path / "data" / "MLTable").write_text("paths: [{pattern: './f0[135]'}, {file: f02}]\n")
    inputs = {"files": {"type": "mltable", "path": "./data"}}
    text = parallel(inputs=inputs, outputs={"out": {"type": "uri_folder"}}, mini_batch_size=None)
    result = run_json(jobs(tmp_path, score=text), cwd=tmp_path)
    written = Path(result["steps"]["score"]["outputs"]["out"], "parallel_run_step.txt").read_text()
    assert written == "f01 1\nf03 3\nf05 5\nf02 2\n"
    assert result["steps"]["score"]["metrics"]["mini_batches"] == 4


@pytest.mark.parametrize(
    ("mltable", "message"),
    [
        (None, "is no mltable"),
        ("paths: []\n", "lists no paths"),
        ("paths: [{file: 'azureml://x/y'}]\n", "lies in the cloud"),
        ("paths: [{file: nowhere}]\n", "there is no file 'nowhere'"),
        (
            "paths: [{file: f00}]\ntransformations: [{read_delimited: {}}]\n",
            "MLTable transformation 'read_delimited' is not run locally.",
        ),
        (
            "paths: [{file: f00}]\ntransformations: [read_parquet]\n",
            "transformation 'read_parquet' is not run locally.",
        ),
    ],
)
def test_an_mltable_that_cannot_be_read_here_is_refused_before_anything_starts(tmp_path, mltable, message):
    project(tmp_path)
    if mltable is not None:
        (tmp_path / "data" / "MLTable").write_text(mltable)
    text = parallel(inputs={"files": {"type": "mltable", "path": "./data"}})
    done = allranks("run", jobs(tmp_path, score=text), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / ".allranks").exists()


def test_partition_keys_are_refused_before_anything_starts(tmp_path):
    text = parallel(partition_keys=["store"], mini_batch_size=None)
    done = allranks("run", jobs(project(tmp_path), score=text), cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot run here: partition_keys divides a table" in done.stderr


def test_a_parallel_component_is_a_target_and_a_step_may_change_its_settings(tmp_path):
    project(tmp_path)
    component = parallel(inputs={"files": {"type": "uri_folder"}}, name="scorer", version="1", mini_batch_size="1")
    component["task"]["code"] = "./src"
    (tmp_path / "scorer.yaml").write_text(json.dumps(component))
    alone = run_json("scorer.yaml", "files=data", cwd=tmp_path)
    assert alone["steps"]["scorer"]["metrics"]["mini_batches"] == 7
    inputs = {"files": {"type": "uri_folder", "path": "./data"}}
    used = {"type": "parallel", "component": "./scorer.yaml", "inputs": inputs, "mini_batch_size": "4"}
    result = run_json(jobs(tmp_path, score=used), cwd=tmp_path)
    assert result["steps"]["score"]["metrics"]["mini_batches"] == 2


PYTHON = """
    from azure.ai.ml import Input, Output
    from azure.ai.ml.dsl import pipeline
    from azure.ai.ml.parallel import RunFunction, parallel_run_function

    score = parallel_run_function(
        name="score", inputs={"files": Input(type="uri_folder")}, outputs={"out": Output(type="uri_file")},
        input_data="${{inputs.files}}", instance_count=2, max_concurrency_per_instance=1, mini_batch_size="3",
        error_threshold=0, retry_settings={"max_retries": 0, "timeout": 30},
        task=RunFunction(code="./src", entry_script="score.py", environment="azureml:e:1",
                         append_row_to="${{outputs.out}}"),
    )

    @pipeline(default_compute="c")
    def scoring(data: Input(type="uri_folder")):
        return {"out": score(files=data).outputs.out}
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_python_pipeline_runs_and_is_written_as_yaml(tmp_path):
    project(tmp_path)
    (tmp_path / "many.py").write_text(textwrap.dedent(PYTHON))
    result = run_json("many.py:scoring", "data=data", cwd=tmp_path)
    assert result["exit"] == 0
    assert (result["steps"]["score"]["nodes"], result["steps"]["score"]["metrics"]["mini_batches"]) == (2, 3)
    exported = allranks("export", "many.py:scoring", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert yaml.safe_load((tmp_path / "many.yaml").read_text())["jobs"]["score"]["type"] == "parallel"
    assert allranks("lint", "many.yaml", cwd=tmp_path).returncode == 0


def test_what_would_be_sent_names_nodes_and_workers(tmp_path, cli):  # noqa: F811
    file = jobs(project(tmp_path), score=parallel(resources={"instance_count": 3}))
    changes = ("--scale", "score=2x5", "--compute", "serverless", "--instance-type", "score=Standard_E4s_v3")
    changed = cli("submit", str(file), "--dry-run", "--json", *changes).json["steps"]["score"]
    assert {"nodes": 2, "processes": 5, "files": 1}.items() <= changed.items()
    refused = cli("submit", str(file), "--dry-run", "--timeout", "score=2h", "--compute", "c")
    assert refused.code == 2
    assert "timeout of a parallel step" in refused.err
    scaled = allranks("run", file, "--dry-run", "--json", "--scale", "score=1x4", cwd=tmp_path)
    step = json.loads(scaled.stdout)["steps"]["score"]
    assert (step["nodes"], step["processes"]) == (1, 4)
