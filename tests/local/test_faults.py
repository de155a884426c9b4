"""Kill anything at any moment: nothing hangs, nothing is left running, the next start continues."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.support import ROOT, allranks, carrying, command, environ, pipeline, run_json, start_allranks, step
from tests.waiting import TIMEOUT, wait_for

# A rank with children of every kind: in its group, in a session of its own, and with an empty environment.
FAMILY = "sleep 300 & setsid sleep 300 & env -i sleep 300 & echo started > {flag}_$RANK; sleep 300"


@pytest.fixture
def running(tmp_path):
    """A run of 2 nodes x 2 ranks whose processes all carry a marker, and its engine."""
    marker = f"MARKER{tmp_path.name}{os.getpid()}"
    flag = tmp_path / "flag"
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          train: {
            step(
                FAMILY.format(flag=flag),
                more=f"environment_variables: {{MARK: {marker}}}, "
                "distribution: {type: pytorch, process_count_per_instance: 2}, resources: {instance_count: 2}",
            )
        }
        """,
    )
    engine = start_allranks("run", file, cwd=tmp_path)
    try:
        wait_for(lambda: all(Path(f"{flag}_{rank}").exists() for rank in range(4)), [engine])
        wait_for(lambda: sleeping_in(tmp_path, 16))
        yield engine, marker, tmp_path
    finally:
        engine.kill()
        engine.wait()
        for pid in carrying(marker):
            os.kill(pid, signal.SIGKILL)


def sleeping_in(folder: Path, at_least: int) -> set[int]:
    """The processes whose working folder lies below ``folder``: those without an environment are found so too."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder / ".allranks"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found if len(found) >= at_least else set()


def gone(folder: Path) -> bool:
    return not sleeping_in(folder, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_and_says_so(running, number):
    engine, _, folder = running
    engine.send_signal(number)
    assert engine.wait() == 128 + number
    wait_for(lambda: gone(folder))
    state = json.loads(next((folder / ".allranks/runs").glob("*/run.json")).read_text())
    assert state["status"] == "cancelled"
    assert state["steps"]["train"]["status"] == "cancelled"


ASKS = """
import os, signal
from pathlib import Path
here = Path(os.environ["FOLDER"])
asked = (signal.SIGINT, signal.SIGHUP)
(here / "state").write_text(str([int(one) for one in asked if signal.getsignal(one) is signal.SIG_IGN]))
(here / "state").rename(here / "ignored")
(here / "go").read_text()  # a pipe
"""


def test_what_it_was_started_to_ignore_ends_nothing(tmp_path):
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('python state.py', more='code: ./code')}}}\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/state.py").write_text(ASKS)
    os.mkfifo(tmp_path / "go")
    engine = subprocess.Popen(
        ["nohup", *command("run", "--json", file)],
        cwd=tmp_path,
        env=environ(FOLDER=str(tmp_path)),
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as a shell does behind & in a script
    )
    wait_for((tmp_path / "ignored").exists, [engine])
    for number in (signal.SIGHUP, signal.SIGINT):
        engine.send_signal(number)
    (tmp_path / "go").write_text("")
    assert json.loads(engine.communicate(timeout=TIMEOUT)[0])["status"] == "succeeded"
    assert (tmp_path / "ignored").read_text() == "[]", "its ranks have Azure's"


def test_nothing_outlives_an_engine_that_is_killed(running):
    engine, _, folder = running
    engine.kill()
    wait_for(lambda: gone(folder))
    listed = allranks("runs", "list", cwd=folder)
    assert "cancelled" in listed.stdout


def test_nothing_outlives_an_engine_whose_guard_was_killed_before(running):
    engine, _, folder = running
    (guard,) = forks_of(engine.pid)
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: forks_of(engine.pid) - {guard})
    engine.kill()
    wait_for(lambda: gone(folder))


def forks_of(pid: int) -> set[int]:
    """The children of a process that run its own program; a killed one has none."""
    own = Path(f"/proc/{pid}/cmdline").read_bytes()
    return {child for child in children_of(pid) if Path(f"/proc/{child}/cmdline").read_bytes() == own}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_one_killed_rank_ends_the_gang(running):
    engine, marker, folder = running
    ranks = set(carrying(marker)) & set(children_of(engine.pid))
    rank_3 = next(pid for pid in ranks if b"\0RANK=3\0" in Path(f"/proc/{pid}/environ").read_bytes())
    os.kill(rank_3, signal.SIGKILL)
    output = "".join(engine.communicate())
    assert engine.returncode == 1
    assert "rank 3 on node 1 was killed by SIGKILL" in output
    assert gone(folder)


def test_what_a_step_leaves_in_the_background_ends_with_it(tmp_path):
    code = "setsid sleep 300 & sleep 300 & (setsid sh -c 'sleep 300 & sleep 300' &) ; true"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(code)}}}\n")
    assert run_json(file, cwd=tmp_path)["exit"] == 0
    assert gone(tmp_path)


COUNTING = """
import os, pathlib, sys
checkpoints, other = map(pathlib.Path, sys.argv[1:3])
done = sorted(int(p.name) for p in checkpoints.iterdir())
assert not list(other.iterdir()), "an output that is not rw_mount starts empty"
(other / "leftover").write_text("x")
for number in range(len(done), 6):
    if number == 3:
        pathlib.Path(os.environ["AT"], "go").read_text()  # at first a pipe
    (checkpoints / str(number)).write_text(str(os.getpid()))
(other / "first").write_text(str(len(done)))
"""


@pytest.fixture
def counting(tmp_path):
    """A pipeline of one step that counts to six, whose engine was killed when three numbers were written."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/count.py").write_text(COUNTING)
    os.mkfifo(tmp_path / "go")
    outputs = "checkpoints: {type: uri_folder, mode: rw_mount}, other: {type: uri_folder}"
    one = step("python count.py ${{outputs.checkpoints}} ${{outputs.other}}", more="code: ./code", outputs=outputs)
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{count: {one}}}\n")
    engine = start_allranks("run", file, cwd=tmp_path, AT=str(tmp_path))
    wait_for(lambda: list(tmp_path.glob(".allranks/work/*/outputs/checkpoints/2")), [engine])
    engine.kill()
    engine.wait()
    wait_for(lambda: gone(tmp_path))
    (tmp_path / "go").unlink()
    (tmp_path / "go").touch()
    return file


@pytest.mark.parametrize(("options", "first"), [((), 3), (("--no-cache",), 0)])
def test_after_a_kill_the_next_start_continues_from_what_was_written(counting, tmp_path, options, first):
    result = run_json(counting, *options, cwd=tmp_path, AT=str(tmp_path))
    assert result["exit"] == 0
    assert (Path(result["steps"]["count"]["outputs"]["other"]) / "first").read_text() == str(first)
    assert not list((tmp_path / ".allranks/work").iterdir()), "a finished step leaves no work folder"


def test_two_engines_share_the_work_of_equal_steps(tmp_path):
    code = f"echo ran >> {tmp_path}/count; until [ -e {tmp_path}/go ]; do sleep 0.05; done; date > ${{{{outputs.out}}}}"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(code, outputs='out: {type: uri_file}')}}}\n")
    engines = [start_allranks("run", file, "--json", cwd=tmp_path) for _ in range(2)]
    wait_for(lambda: len(list(tmp_path.glob(".allranks/runs/*/run.json"))) == 2, engines)
    wait_for((tmp_path / "count").exists, engines)
    (tmp_path / "go").touch()
    documents = [json.loads(engine.communicate()[0]) for engine in engines]
    assert [engine.returncode for engine in engines] == [0, 0]
    assert (tmp_path / "count").read_text() == "ran\n"
    assert sorted(document["steps"]["one"]["reused"] for document in documents) == [False, True]


def copied(folder: Path, text: str) -> Path:
    """Wait until the script with this text is wholly in the snapshot of the second step; the copy."""
    copies = ".allranks/runs/*/steps/second/snapshot/say.sh"
    return wait_for(lambda: next((copy for copy in folder.glob(copies) if copy.read_text() == text), None))


def test_the_snapshot_is_checked_before_it_is_run(tmp_path):
    """Whoever can write into the run's folder while it waits could otherwise have anything executed."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/say.sh").write_text("echo fine\n")
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          first: {step("touch $AT/runs; until [ -e $AT/go ]; do sleep 0.05; done", outputs="out: {type: uri_folder}")}
          second: {step("bash say.sh", inputs="data: '${{parent.jobs.first.outputs.out}}'", more="code: ./code")}
        """,
    )
    engine = start_allranks("run", file, "--json", cwd=tmp_path, AT=str(tmp_path))
    wait_for((tmp_path / "runs").exists)
    copied(tmp_path, "echo fine\n").write_text("echo evil\n")
    (tmp_path / "go").touch()
    document = json.loads(engine.communicate()[0])
    assert "changed since the run began" in document["steps"]["second"]["failure"]["message"]


def test_editing_the_code_during_a_run_changes_the_next_run_only(tmp_path):
    (tmp_path / "code").mkdir()
    script = tmp_path / "code/say.sh"
    script.write_text("echo old\n")
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          first: {step("until [ -e $AT/go ]; do sleep 0.05; done", outputs="out: {type: uri_folder}")}
          second: {step("bash say.sh", inputs="data: '${{parent.jobs.first.outputs.out}}'", more="code: ./code")}
        """,
    )
    engine = start_allranks("run", file, "--json", cwd=tmp_path, AT=str(tmp_path))
    copied(tmp_path, "echo old\n")
    script.write_text("echo new\n")
    (tmp_path / "go").touch()
    before = json.loads(engine.communicate()[0])["steps"]["second"]
    after = run_json(file, cwd=tmp_path, AT=str(tmp_path))["steps"]["second"]
    logs = [Path(s["folder"], "user_logs/std_log.txt").read_text() for s in (before, after)]
    assert logs == ["old\n", "new\n"]


@pytest.mark.parametrize("culprit", [0, 2])
def test_the_rank_that_failed_is_named_and_none_that_waited_for_it(tmp_path, culprit):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/script.py").write_text(
        "from shared.distributed import init\n"
        "with init(None) as world:\n"
        f"    if world.rank == {culprit}:\n"
        "        raise ValueError('bad row')\n"
        "    world.barrier('the others wait')\n"
    )
    component = {
        "type": "command",
        "name": "work",
        "version": "1",
        "code": "./code",
        "additional_includes": [str(ROOT / "shared")],
        "command": f"{sys.executable} script.py",
        "environment": "azureml:theirs:1",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "resources": {"instance_count": 2},
    }
    (tmp_path / "work.yaml").write_text(json.dumps(component))  # which is YAML
    file = pipeline(tmp_path, "type: pipeline\njobs: {train: {type: command, component: ./work.yaml}}\n")
    failure = run_json(file, cwd=tmp_path)["steps"]["train"]["failure"]
    assert failure["rank"] == culprit
    assert any("ValueError: bad row" in line for line in failure["last_lines"])


def test_a_traceback_points_at_the_file_that_is_mended_unless_it_has_changed(tmp_path):
    code = tmp_path / "code"
    (code / "inner").mkdir(parents=True)
    (code / "main.py").write_text("from inner.part import work\n\nwork()\n")
    (code / "inner" / "part.py").write_text("def work():\n    raise ValueError('wrong')\n")
    (code / "edits.py").write_text(
        "open(SELF, 'a').write('#')\nraise ValueError\n".replace("SELF", repr(str(code / "edits.py")))
    )
    jobs = f"{{a: {step('python main.py', more='code: ./code')}, b: {step('python edits.py', more='code: ./code')}}}"
    result = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {jobs}\n"), cwd=tmp_path)
    lines = "\n".join(result["steps"]["a"]["failure"]["last_lines"])
    assert f'File "{code}/main.py", line 3' in lines
    assert f'File "{code}/inner/part.py", line 2, in work' in lines
    assert "nodes/0/work" not in lines
    changed = "\n".join(result["steps"]["b"]["failure"]["last_lines"])
    assert "nodes/0/work/edits.py" in changed, "a line of the file as it is now would be another one"
