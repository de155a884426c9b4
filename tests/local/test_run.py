"""Whole runs of small pipelines: order, data, failure, reuse, as a user sees them."""

from __future__ import annotations

import json
import os
import py_compile
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.support import allranks, late, pipeline, run_json, step

ECHO = "echo hello > ${{outputs.out}}/file"


def chain(folder: Path, first: str = ECHO, second: str = "cat ${{inputs.data}}/file > ${{outputs.out}}") -> Path:
    return pipeline(
        folder,
        f"""
        type: pipeline
        jobs:
          second: {step(second, inputs="data: '${{parent.jobs.first.outputs.out}}'", outputs="out: {type: uri_file}")}
          first: {step(first, outputs="out: {type: uri_folder}")}
        """,
    )


def test_outputs_reach_the_steps_that_read_them(tmp_path):
    result = run_json(chain(tmp_path), cwd=tmp_path)
    assert result["exit"] == 0, result
    assert result["status"] == "succeeded"
    assert list(result["steps"]) == ["first", "second"]
    assert Path(result["steps"]["second"]["outputs"]["out"]).read_text() == "hello\n"
    assert result["steps"]["second"]["attempts"] == 1
    assert (Path(result["run_dir"]) / "report.html").is_file()


@pytest.mark.parametrize(
    ("change", "reused"),
    [
        ("nothing", [True, True]),
        ("command", [True, False]),
        ("output removed", [False, False]),
        ("output changed", [False, False]),
        ("run removed", [False, False]),
        ("no cache", [False, False]),
    ],
)
def test_what_makes_a_step_run_again(tmp_path, change, reused):
    file, options = chain(tmp_path), []
    before = run_json(file, cwd=tmp_path)
    output = Path(before["steps"]["first"]["outputs"]["out"]) / "file"
    if change == "command":
        chain(tmp_path, second="cat ${{inputs.data}}/file ${{inputs.data}}/file > ${{outputs.out}}")
    elif change == "output removed":
        output.unlink()
    elif change == "output changed":
        output.write_text("HELLO\n")
    elif change == "run removed":
        assert allranks("runs", "remove", "latest", cwd=tmp_path).returncode == 0
    elif change == "no cache":
        options = ["--no-cache"]
    after = run_json(file, *options, cwd=tmp_path)
    assert after["exit"] == 0
    assert [s["reused"] for s in after["steps"].values()] == reused


def test_a_changed_input_file_is_a_miss_and_an_untouched_one_a_hit(tmp_path):
    (tmp_path / "in.txt").write_text("one")
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        inputs: {{data: {{type: uri_file, path: in.txt}}}}
        jobs:
          read: {step("cat ${{inputs.data}} > ${{outputs.out}}", inputs="data: '${{parent.inputs.data}}'", outputs="out: {type: uri_file}")}
        """,
    )
    assert not run_json(file, cwd=tmp_path)["steps"]["read"]["reused"]
    assert run_json(file, cwd=tmp_path)["steps"]["read"]["reused"]
    (tmp_path / "in.txt").write_text("two")
    again = run_json(file, cwd=tmp_path)["steps"]["read"]
    assert not again["reused"]
    assert Path(again["outputs"]["out"]).read_text() == "two"


def test_force_rerun_and_is_deterministic_false_run_again(tmp_path):
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        settings: {{force_rerun: true}}
        jobs: {{one: {step("true")}}}
        """,
    )
    run_json(file, cwd=tmp_path)
    assert not run_json(file, cwd=tmp_path)["steps"]["one"]["reused"]
    (tmp_path / "dice.yaml").write_text(
        "name: dice\nversion: '1'\ntype: command\nis_deterministic: false\ncommand: 'true'\nenvironment: azureml:x:1\n"
    )
    file = pipeline(tmp_path, "type: pipeline\njobs: {one: {component: ./dice.yaml}}\n", "dice_pipeline.yaml")
    run_json(file, cwd=tmp_path)
    assert not run_json(file, cwd=tmp_path)["steps"]["one"]["reused"]


def test_a_failing_step_is_explained_and_the_rest_goes_on(tmp_path):
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          bad: {step("echo the reason; exit 7", outputs="out: {type: uri_folder}")}
          after: {step("true", inputs="data: '${{parent.jobs.bad.outputs.out}}'")}
          other: {step("true")}
        """,
    )
    done = allranks("run", file, cwd=tmp_path)
    assert done.returncode == 1
    assert "step bad: the command ended with exit code 7" in done.stderr
    assert "| the reason" in done.stderr
    assert "std_log.txt" in done.stderr
    assert "Traceback" not in done.stderr
    again = run_json(file, cwd=tmp_path)
    assert {name: s["status"] for name, s in again["steps"].items()} == {
        "bad": "failed",
        "after": "skipped",
        "other": "succeeded",
    }


def test_without_continue_on_step_failure_the_others_are_cancelled(tmp_path):
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        settings: {{continue_on_step_failure: false}}
        jobs:
          bad: {step(f"until [ -e {tmp_path}/begun ]; do sleep 0.02; done; exit 1")}
          other: {step(f"touch {tmp_path}/begun; sleep 300")}
        """,
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 1
    assert result["steps"]["other"]["status"] == "cancelled"


def test_a_step_whose_time_is_up_shows_its_stack(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/hang.py").write_text(
        "import faulthandler, os, signal\n"
        "faulthandler.register(signal.SIGUSR1, all_threads=True)\n"
        "def waits_for_ever():\n"
        "    open(os.environ['JUMPS'] + '/0', 'w').close()\n"
        "    while True: signal.pause()\n"
        "waits_for_ever()\n"
    )
    file = pipeline(
        tmp_path,
        f"type: pipeline\njobs: {{one: {step('python hang.py', more='code: ./code, limits: {timeout: 600}')}}}\n",
    )
    failure = run_json(file, cwd=tmp_path, **late(tmp_path / "jumps"))["steps"]["one"]["failure"]
    assert failure["message"] == "not finished after limits.timeout = 600 s"
    assert "waits_for_ever" in "\n".join(failure["last_lines"])


@pytest.mark.slow
def test_ranks_whose_time_is_up_are_all_quoted_with_how_long_each_was_silent(tmp_path):
    """Only rank 0 was, which waits for the one that hangs."""
    script = (
        'if [ "$RANK" = 0 ]; then echo "rank 0 is here"; touch here; sleep 600; fi; '
        'until [ -e here ]; do sleep 0.02; done; echo "rank 1 is here"; echo "and stays"; touch "$JUMPS/0"; sleep 600'
    )
    more = "distribution: {type: pytorch, process_count_per_instance: 2}, limits: {timeout: 600}"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(script, more=more)}}}\n")
    result = run_json(file, "--events", "events.jsonl", cwd=tmp_path, **late(tmp_path / "jumps"))
    failure = result["steps"]["one"]["failure"]
    assert failure["message"] == (
        "not finished after limits.timeout = 600 s; "
        "with faulthandler.register(signal.SIGUSR1) in the script, each rank's log then ends with where it stood"
    )
    lines = [re.sub(r"\d+\.\d s", "1 s", line) for line in failure["last_lines"]]
    first, second = (f"rank {rank} on node 0, silent for 1 s:" for rank in range(2))
    assert lines == [first, "  rank 0 is here", second, "  rank 1 is here", "  and stays"]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert next(one["result"]["failure"] for one in events if one.get("status") == "failed") == failure


def test_a_step_that_ends_well_after_its_time_is_said_to_be_late(tmp_path):
    """Asked for its stack it went on to its end, and all that was said of it was: stopped."""
    one = step("trap true USR1; touch $JUMPS/0; sleep 600; exit 0", more="limits: {timeout: 600}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {one}}}\n")
    failure = run_json(file, cwd=tmp_path, **late(tmp_path / "jumps"))["steps"]["one"]["failure"]
    assert failure["message"] == "not finished after limits.timeout = 600 s"


def test_independent_steps_overlap(tmp_path):
    if os.cpu_count() == 1:
        pytest.skip("one core runs one step at a time")
    meet = f"touch {tmp_path}/{{}}; until [ -e {tmp_path}/{{}} ]; do sleep 0.02; done"
    jobs = f"{{left: {step(meet.format('left', 'right'))}, right: {step(meet.format('right', 'left'))}}}"
    assert run_json(pipeline(tmp_path, f"type: pipeline\njobs: {jobs}\n"), cwd=tmp_path)["exit"] == 0


def test_an_output_that_was_not_written_is_a_failure(tmp_path):
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('true', outputs='out: {type: uri_file}')}}}\n")
    failure = run_json(file, cwd=tmp_path)["steps"]["one"]["failure"]
    assert failure["message"] == "succeeded but did not write its output out"


def test_a_step_may_not_write_to_its_inputs(tmp_path):
    """Where the machine allows it the write fails at once; elsewhere the step does when it has ended."""
    file = chain(tmp_path, second="echo more >> ${{inputs.data}}/file && touch ${{outputs.out}}")
    result = run_json(file, cwd=tmp_path)
    assert "which is read-only" in result["steps"]["second"]["failure"]["message"]
    (folder,) = result["steps"]["first"]["outputs"].values()
    spoilt = "more" in (Path(folder) / "file").read_text()
    assert run_json(file, cwd=tmp_path)["steps"]["first"]["reused"] is not spoilt


def test_equal_steps_of_one_run_are_executed_once(tmp_path):
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          one: {step(f"echo ran >> {tmp_path}/count", outputs="out: {type: uri_folder}")}
          two: {step(f"echo ran >> {tmp_path}/count", outputs="out: {type: uri_folder}")}
        """,
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 0
    assert (tmp_path / "count").read_text() == "ran\n"
    assert sorted(s["reused"] for s in result["steps"].values()) == [False, True]


def test_json_is_one_document_and_errors_are_too(tmp_path):
    done = allranks("run", chain(tmp_path), "--json", cwd=tmp_path)
    json.loads(done.stdout)
    assert done.stderr == ""
    done = allranks("run", "no_such_target", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert set(json.loads(done.stdout)["error"]) == {"kind", "message", "hint"}


def test_a_dry_run_starts_and_writes_nothing(tmp_path):
    document = run_json(chain(tmp_path), "--dry-run", cwd=tmp_path)
    assert document["exit"] == 0
    assert document["steps"]["first"]["command"] == "echo hello > <first.out>/file"
    assert document["steps"]["second"]["inputs"] == {"data": "<first.out>"}
    assert not (tmp_path / ".allranks").exists()


def test_steps_limits_the_run_to_what_is_needed(tmp_path):
    result = run_json(chain(tmp_path), "--steps", "first", cwd=tmp_path)
    assert list(result["steps"]) == ["first"]


def test_resume_runs_again_what_had_failed_with_the_same_values(tmp_path):
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        inputs: {{word: none}}
        jobs:
          say: {step("echo ${{inputs.word}} > ${{outputs.out}}", inputs="word: '${{parent.inputs.word}}'", outputs="out: {type: uri_file}")}
          check: {step(f"test -e {tmp_path}/ready && cat ${{{{inputs.said}}}}", inputs="said: '${{parent.jobs.say.outputs.out}}'")}
        """,
    )
    assert run_json(file, "word=hello", cwd=tmp_path)["exit"] == 1
    (tmp_path / "ready").touch()
    result = run_json("--resume", "latest", cwd=tmp_path)
    assert result["exit"] == 0
    assert result["steps"]["say"]["reused"]
    assert Path(result["steps"]["say"]["outputs"]["out"]).read_text() == "hello\n"


def test_a_step_runs_with_the_interpreter_that_is_chosen_for_it(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    say = "python -c 'import sys; print(sys.prefix)' > ${{outputs.out}}"
    text = f"type: pipeline\njobs: {{one: {step(say, outputs='out: {type: uri_file}')}}}\n"
    file = pipeline(tmp_path, text)
    for options, prefix in (([], sys.prefix), (["--python", "one=other/bin/python"], str(tmp_path / "other"))):
        result = run_json(file, *options, cwd=tmp_path)
        assert not result["steps"]["one"]["reused"], "another interpreter is another step"
        assert Path(result["steps"]["one"]["outputs"]["out"]).read_text().strip() == prefix


def test_settings_without_effect_are_named_once(tmp_path):
    more = "compute: azureml:gpu, resources: {instance_type: Standard_NC6, shm_size: 2g}"
    jobs = f"{{a: {step('true', more=more)}, b: {step('true', more=more)}}}"
    file = pipeline(tmp_path, f"type: pipeline\ncompute: azureml:cpu\njobs: {jobs}\n")
    errors = allranks("run", file, cwd=tmp_path).stderr
    line = (
        "note: without effect on this machine: compute of the pipeline, a, b; instance_type of a, b; shm_size of a, b"
    )
    assert errors.count("without effect") == 1
    assert line in errors


@pytest.mark.slow
def test_what_python_compiles_beside_an_input_is_no_change_of_it(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/given.py").write_text("VALUE = 3\n")
    text = step("ls ${{inputs.data}}", inputs="data: {type: uri_folder, path: ./data}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {text}}}\n")
    assert run_json(file, cwd=tmp_path)["exit"] == 0
    py_compile.compile(str(tmp_path / "data/given.py"))
    assert (tmp_path / "data/__pycache__").is_dir()
    assert run_json(file, cwd=tmp_path)["steps"]["one"]["reused"]
