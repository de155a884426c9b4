"""Killed in the short moments, two at a time, on a full disk, with a clock set back: nothing is half-written or lost."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allranks.local.assets import register_asset
from allranks.local.cache import Workplace, discard_leftovers
from allranks.local.folders import RunFolder, RunsHome, StepFolder, write_json_file
from allranks.local.processes import is_zombie
from tests.local.support import allranks, carrying, command, environ, pipeline, run_json, start_allranks, step
from tests.waiting import TIMEOUT, wait_for


def large_code(folder: Path, size: int) -> Path:
    """A pipeline of one step whose code holds a file of so many bytes, all zero."""
    (folder / "code").mkdir()
    with (folder / "code/large").open("wb") as file:
        file.truncate(size)
    return pipeline(folder, f"type: pipeline\njobs: {{one: {step('true', more='code: ./code')}}}\n")


def runs_of(folder: Path) -> list[dict]:
    return json.loads(allranks("runs", "--json", cwd=folder).stdout)["runs"]


def test_a_run_that_is_killed_while_its_snapshot_is_copied_is_listed_and_can_be_removed(tmp_path):
    engine = start_allranks("run", large_code(tmp_path, 1 << 28), cwd=tmp_path)
    wait_for(lambda: list(tmp_path.glob(".allranks/runs/*/steps/one/snapshot/large")))
    engine.kill()
    engine.communicate()
    (run,) = runs_of(tmp_path)
    assert (run["status"], run["steps"]["one"]["status"]) == ("cancelled", "cancelled")
    assert allranks("runs", "remove", "latest", cwd=tmp_path).returncode == 0
    assert not list((tmp_path / ".allranks/runs").iterdir())


def test_a_snapshot_that_does_not_fit_leaves_nothing(tmp_path):
    file = large_code(tmp_path, 1 << 21)
    small = f"ulimit -f 1024; exec {shlex.join(command('run', file))}"  # in KiB
    done = subprocess.run(
        ["bash", "-c", small], cwd=tmp_path, env=environ(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert " to the snapshot " in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / ".allranks/runs").iterdir())


def test_an_engine_that_cannot_write_any_more_says_so_and_ends_its_ranks(tmp_path):
    marker = f"MARK{tmp_path.name}{os.getpid()}"
    more = f"environment_variables: {{MARK: {marker}}}"
    wait = step("sleep 300", more=more)
    ends = step(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done", more=more)
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {ends}, two: {wait}}}\n")
    engine = subprocess.Popen(
        command("run", file), cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_for(lambda: len(carrying(marker)) >= 2, [engine])
    resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (10, 10))  # as on a full disk: no file gets longer than this
    (tmp_path / "go").touch()
    said, _ = engine.communicate(timeout=TIMEOUT)
    assert engine.returncode == 1
    assert re.search("error: step (one|two): the runs folder", said)  # whichever is written next
    assert "File too large" in said
    assert "Traceback" not in said
    assert not carrying(marker)
    assert runs_of(tmp_path)[0]["status"] == "cancelled"


@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
    reason="the small disk has to be mounted, which takes root, and more than a chroot",
)
def test_a_run_on_a_full_disk_has_failed_and_says_so_everywhere(tmp_path):
    file = pipeline(
        tmp_path,
        f"""type: pipeline
jobs:
  fill: {step("head -c 20000000 /dev/zero > ${{outputs.out}}/x || true", outputs="out: {type: uri_folder}")}
  after: {step("true", inputs="data: '${{parent.jobs.fill.outputs.out}}'")}
""",
    )
    (small := tmp_path / "small").mkdir()
    run = command("run", file, "--runs-dir", small / "runs", "--json")
    shown = command("runs", "--runs-dir", small / "runs", "--json")
    script = f'mount -t tmpfs -o size=2m none {small} && {shlex.join(run)}; echo "code $?" >&2; {shlex.join(shown)}'
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        cwd=tmp_path, env=environ(), capture_output=True, text=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    decoder = json.JSONDecoder()
    document, end = decoder.raw_decode(done.stdout)
    assert "code 1" in done.stderr
    assert (document["status"], document["steps"]["fill"]["status"]) == ("failed", "failed")
    assert "cannot be written: No space left on device" in document["steps"]["fill"]["failure"]["message"]
    kept = decoder.raw_decode(done.stdout[end:].lstrip())[0]["runs"][0]
    assert (kept["status"], kept["steps"]["after"]["status"]) == ("failed", "cancelled")


def test_a_killed_run_shows_which_of_its_steps_had_finished(tmp_path):
    first = step("true", outputs="out: {type: uri_folder}")
    second = step("sleep 300", inputs="data: '${{parent.jobs.first.outputs.out}}'")
    engine = start_allranks(
        "run", pipeline(tmp_path, f"type: pipeline\njobs: {{first: {first}, second: {second}}}\n"), cwd=tmp_path
    )
    state = wait_for(lambda: list(tmp_path.glob(".allranks/runs/*/steps/second/step.json")))[0]
    wait_for(lambda: json.loads(state.read_text())["status"] == "running")
    statuses = [step["status"] for step in runs_of(tmp_path)[0]["steps"].values()]
    assert statuses == ["succeeded", "running"]
    engine.kill()
    engine.communicate()
    statuses = [step["status"] for step in runs_of(tmp_path)[0]["steps"].values()]
    assert statuses == ["succeeded", "cancelled"]


# Registered outputs


def test_an_output_is_registered_by_the_next_start_if_the_engine_was_killed_before(tmp_path):
    make = step("echo made > ${{outputs.out}}", outputs="out: {type: uri_file, name: made}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{make: {make}}}\n")
    first = run_json(file, cwd=tmp_path)
    record = tmp_path / ".allranks/assets/made.json"
    record.unlink()
    for _ in range(2):
        assert run_json(file, cwd=tmp_path)["steps"]["make"]["reused"]
        versions = json.loads(record.read_text())["versions"]
        assert {name: entry["path"] for name, entry in versions.items()} == {
            "1": first["steps"]["make"]["outputs"]["out"]
        }


def test_engines_that_register_at_the_same_time_lose_no_version(tmp_path):
    home = RunsHome(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        chosen = list(
            pool.map(lambda n: register_asset(home, "model", None, tmp_path / str(n), "uri_folder"), range(24))
        )
    assert sorted(chosen, key=int) == [str(number) for number in range(1, 25)]


# Workplaces


def workplace(home: RunsHome, key: str, *files: str) -> Path:
    for file in files:
        path = home.work(key) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return home.work(key)


def test_what_killed_processes_left_and_nothing_continues_from_is_removed_by_the_next_run(tmp_path):
    home = RunsHome(tmp_path / ".allranks")
    home.prepare()
    run = home.run("earlier")
    for name in ("step", "sweep", "sweep.0", "empty", "busy"):
        run.step(name).path.mkdir(parents=True)
        write_json_file(run.step(name).state, {"key": name})
    write_json_file(run.state, {"run_id": "earlier", "status": "running", "steps": {}})
    kept = [
        workplace(home, "step", "lock", "outputs/checkpoints/1"),
        workplace(home, "sweep", "trials.json"),
        workplace(home, "sweep.0", "outputs/checkpoints/1"),
        workplace(home, "busy", "lock"),
    ]
    workplace(home, "empty", "lock")
    workplace(home, "unknown", "lock", "outputs/x")
    workplace(home, ".removed.17", "outputs/x")
    rest = home.runs / ".older.removed/steps"
    rest.mkdir(parents=True)
    busy = Workplace(home, "busy")
    assert busy.acquire()
    result = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('true')}}}\n"), cwd=tmp_path)
    assert result["exit"] == 0
    assert sorted((home.path / "work").iterdir()) == sorted(kept)
    assert not rest.parent.exists()
    busy.release()


def test_an_engine_that_waits_for_a_step_does_not_disturb_the_one_that_finishes_it(tmp_path):
    home, over = RunsHome(tmp_path), threading.Event()
    home.prepare()

    def wait() -> None:
        while not over.is_set():
            place = Workplace(home, "key")
            if place.acquire():
                place.release()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        for number in range(150):
            place = Workplace(home, "key")
            wait_for(place.acquire)
            place.prepare([])
            run = RunFolder(tmp_path / "runs" / str(number))
            run.step("one").path.mkdir(parents=True)
            place.publish(run.step("one"))
        over.set()
        waiting.result()
    discard_leftovers(home)
    assert not list((tmp_path / "work").iterdir())


# Processes

TOO_LATE = """
import os, sys
from pathlib import Path
from allranks.local import processes
from tests.waiting import wait_for
parent = os.getpid()
if os.fork() == 0:
    wait_for(lambda: os.getppid() != parent)
    Path(sys.argv[1] + ".new").write_text(str(os.getpid()))
    Path(sys.argv[1] + ".new").rename(sys.argv[1] + ".asks")
    processes.die_with(parent)
    Path(sys.argv[1]).touch()
os._exit(0)
"""
STOPPED = """
import os, signal
from allranks.local.guard import ProcessGuard
guard = ProcessGuard("MARK=none")
os.kill(guard.pid, signal.SIGSTOP)
guard.close()
"""


def test_a_rank_whose_engine_was_killed_before_it_could_ask_to_die_with_it_ends(tmp_path):
    alive = tmp_path / "alive"
    subprocess.run([sys.executable, "-c", TOO_LATE, alive], env=environ(), check=True)
    wait_for((tmp_path / "alive.asks").exists)
    late = (tmp_path / "alive.asks").read_text()
    wait_for(lambda: not Path(f"/proc/{late}").exists() or is_zombie(int(late)))
    assert not alive.exists()


def test_a_guard_that_was_stopped_does_not_keep_the_engine_from_ending():
    subprocess.run([sys.executable, "-c", STOPPED], env=environ(), check=True, timeout=TIMEOUT)


def test_a_killed_build_of_an_environment_leaves_no_process_and_nobody_builds_the_same_meanwhile(tmp_path):
    marker = f"ALLRANKS_BUILDING={tmp_path / '.allranks/environments/pytorch'}"
    builder = start_allranks("env", "build", "pytorch", cwd=tmp_path)
    wait_for(lambda: carrying(marker))
    second = allranks("env", "build", "pytorch", cwd=tmp_path)
    builder.kill()
    assert second.returncode == 2
    assert "being built already" in second.stderr
    wait_for(lambda: not carrying(marker))
    assert json.loads(allranks("env", "check", "pytorch", "--json", cwd=tmp_path).stdout)["built"] is False


def test_an_absolute_link_within_an_output_leads_to_the_same_file_when_it_is_published(tmp_path):
    """It led to where the step had written, which is gone then: the next step found nothing, nor did a reuse."""
    home = RunsHome(tmp_path / "home")
    place = Workplace(home, "k")
    assert place.acquire()
    place.prepare([])
    (place.outputs / "model").mkdir()
    (place.outputs / "model" / "first").write_text("1")
    (place.outputs / "model" / "last").symlink_to(place.outputs / "model" / "first")
    (place.outputs / "model" / "python").symlink_to(sys.executable)
    (home.path / "step").mkdir()
    place.loosen_links()
    place.publish(StepFolder(home.path / "step"))
    assert (home.path / "step" / "outputs" / "model" / "last").read_text() == "1"
    assert (home.path / "step" / "outputs" / "model" / "python").readlink() == Path(sys.executable)
