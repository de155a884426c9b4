"""Whatever is killed, nothing stays behind, and what was to run runs to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.errors import CannotRunHereError
from allranks.local.warm.address import is_keeper_there, open_listener
from tests.local.support import allranks, command, environ
from tests.local.warm.support import Warmth, is_alive, log_of, wait_until

WAITS = """
import os, subprocess, sys, time
from pathlib import Path
import numpy
here = Path(sys.argv[1])
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
(here / f"{os.getpid()}.{child.pid}.pid").touch()
while not (here / "go").exists():
    time.sleep(0.05)
child.kill()
"""


def noted_pids(folder: Path, count: int) -> set[int]:
    """The processes of that many ranks, and what they have started in sessions of their own."""
    wait_until(lambda: len(list(folder.glob("*.pid"))) == count)
    return {int(pid) for note in folder.glob("*.pid") for pid in note.name.split(".")[:2]}


@pytest.fixture
def waiting(warmth: Warmth, tmp_path: Path) -> Path:
    """A folder with a script that waits for a file ``go`` there, and has been warmed up."""
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "go").touch()
    warmth.warm_up("waits.py", "--scale", "1x2", "--distribution", "pytorch", "--", str(tmp_path), cwd=tmp_path)
    (tmp_path / "go").unlink()
    for note in tmp_path.glob("*.pid"):
        note.unlink()
    return tmp_path


ARGUMENTS = ("waits.py", "--scale", "1x2", "--distribution", "pytorch", "--retries", "0")


def test_the_engine_is_killed_and_no_rank_stays(warmth: Warmth, waiting: Path) -> None:
    engine = warmth.start(*ARGUMENTS, "--", str(waiting), cwd=waiting)
    pids = noted_pids(waiting, 2)
    assert warmth.forked() == 2
    os.kill(engine.pid, signal.SIGKILL)
    engine.communicate()
    wait_until(lambda: not any(map(is_alive, pids)), 5)
    assert is_alive(warmth.template()), "the next run may have it"


def test_a_rank_is_killed_and_the_step_ends_with_all_of_it(warmth: Warmth, waiting: Path) -> None:
    engine = warmth.start(*ARGUMENTS, "--", str(waiting), cwd=waiting)
    pids = noted_pids(waiting, 2)
    os.kill(int(next(waiting.glob("*.pid")).name.split(".")[0]), signal.SIGKILL)
    result = json.loads(engine.communicate(timeout=20)[0])
    assert "was killed by SIGKILL" in result["steps"]["waits"]["failure"]["message"]
    wait_until(lambda: not any(map(is_alive, pids)), 5)


@pytest.mark.parametrize("victim", ["template", "keeper"])
def test_what_ranks_are_forked_from_is_killed_and_the_step_is_run_without(
    warmth: Warmth, waiting: Path, victim: str
) -> None:
    engine = warmth.start(*ARGUMENTS, "--", str(waiting), cwd=waiting)
    first = noted_pids(waiting, 2)
    state = warmth.state()
    for note in waiting.glob("*.pid"):
        note.unlink()
    (waiting / "go").touch()
    os.kill(warmth.template() if victim == "template" else state["pid"], signal.SIGKILL)
    result = json.loads(engine.communicate(timeout=60)[0])
    assert result["status"] == "succeeded"
    assert result["steps"]["waits"]["attempts"] in (1, 2), "it may have ended well in the same moment"
    wait_until(lambda: not any(map(is_alive, first)), 5)


@pytest.mark.slow
def test_a_keeper_that_was_stopped_holds_nobody_up_for_long(warmth: Warmth, waiting: Path) -> None:
    (waiting / "go").touch()
    keeper = warmth.state()["pid"]
    os.kill(keeper, signal.SIGSTOP)
    try:
        began = time.monotonic()
        result = warmth.run(*ARGUMENTS, "--", str(waiting), cwd=waiting)
        assert result["status"] == "succeeded"
        assert time.monotonic() - began < 60
        done = allranks("warm", "--stop", cwd=waiting, XDG_RUNTIME_DIR=str(warmth.place))
        assert (done.returncode, f"kill -9 {keeper}" in done.stderr) == (2, True), done.stderr
    finally:
        os.kill(keeper, signal.SIGCONT)


def test_it_ends_by_itself_when_nobody_asks(warmth: Warmth, tmp_path: Path) -> None:
    def warm(*arguments: str) -> str:
        return allranks("warm", *arguments, cwd=tmp_path, XDG_RUNTIME_DIR=str(warmth.place)).stdout

    keeper = warmth.state()["pid"]
    assert warm("--stop") == "stopped: ranks start as programs of their own again\n"
    wait_until(lambda: not is_alive(keeper), 5)
    assert warm("--show") == "nothing is kept warm; `allranks warm` starts it\n"
    warm("--idle", "0.01")
    keeper = warmth.state()["pid"]
    wait_until(lambda: not is_alive(keeper), 10)
    assert not (warmth.place / "allranks" / "warm.sock").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--idle", "0"), "--idle 0 is not between 0 and 10,080 minutes"),
        (("--memory", "0"), "--memory 0 is not between 0.1 and 10,000 GB"),
        (("--show", "--stop"), "not allowed with"),
    ],
)
def test_wrong_numbers_are_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = allranks("warm", *arguments, cwd=tmp_path, XDG_RUNTIME_DIR=str(tmp_path))
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 30)
    place.mkdir()
    done = allranks("warm", cwd=tmp_path, XDG_RUNTIME_DIR=str(place))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "is longer than a socket's path may be" in done.stderr


def test_what_imports_look_at_is_as_it_was_or_nothing_is_forked(
    warmth: Warmth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    (packages / "tokenizers").mkdir(parents=True)
    module = packages / "tokenizers" / "__init__.py"
    module.write_text("import os\nVALUE = os.environ.get('COLOUR', 'none')\nprint('imported')\n")
    monkeypatch.setenv("COLOUR", "red")
    script = tmp_path / "code" / "says.py"
    script.parent.mkdir()
    script.write_text("import tokenizers\nprint(tokenizers.VALUE, tokenizers.__file__)\n")

    # PYTHONPATH of the step itself: the caller's does not reach it.
    job = tmp_path / "job.yaml"
    variables = f"environment_variables: {{PYTHONPATH: {packages}}}"
    job.write_text(
        f"type: pipeline\njobs:\n  says:\n    type: command\n    code: code\n    command: python says.py\n    environment: azureml:any:1\n    {variables}\n"
    )
    warmth.warm_up("job.yaml", cwd=tmp_path)
    assert log_of(warmth.run("job.yaml", cwd=tmp_path)) == f"imported\nred {module}\n"
    assert warmth.forked() == 1
    monkeypatch.setenv("COLOUR", "blue")
    assert log_of(warmth.run("job.yaml", cwd=tmp_path)) == f"imported\nblue {module}\n"
    assert warmth.forked() == 1, "another variable, another template"
    monkeypatch.setenv("COLOUR", "red")
    time.sleep(0.6)
    module.write_text(module.read_text().replace("VALUE = ", "VALUE = 'new ' + "))
    assert log_of(warmth.run("job.yaml", cwd=tmp_path)) == f"imported\nnew red {module}\n"
    state = warmth.state()
    assert (state["forked"], state["refusal"]) == (1, "what was imported has changed since")


@pytest.mark.parametrize("told_by", ["nanobind", "somebody"])
def test_what_the_collector_leaves_out_is_collected_at_the_end_where_a_module_counts_what_is_left(
    told_by: str, warmth: Warmth, tmp_path: Path
) -> None:
    """Triton's did, in the log of each forked rank: `nanobind: leaked 514 functions!`."""
    packages = tmp_path / "packages"
    (packages / "tokenizers").mkdir(parents=True)
    (packages / "tokenizers" / "__init__.py").write_text(f"value = type('T', (), {{'__module__': {told_by!r}}})()\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "says.py").write_text(
        "import gc, os, tokenizers\nclass Last:\n    def __del__(self, os=os, gc=gc):\n"
        "        os.write(1, b'%d' % bool(gc.get_freeze_count()))\nlast = Last()\n"
    )
    (tmp_path / "job.yaml").write_text(
        "type: pipeline\njobs:\n  says:\n    type: command\n    code: code\n    command: python says.py\n"
        f"    environment: azureml:any:1\n    environment_variables: {{PYTHONPATH: {packages}}}\n"
    )
    warmth.warm_up("job.yaml", cwd=tmp_path)
    assert log_of(warmth.run("job.yaml", cwd=tmp_path)) == ("0" if told_by == "nanobind" else "1")
    assert warmth.forked() == 1, warmth.state()


def test_a_variable_that_no_import_looks_at_needs_no_template_of_its_own(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "go.py").write_text("import os, numpy\nprint(os.environ['OF_THIS_TERMINAL'])\n")
    warmth.warm_up("go.py", cwd=tmp_path, OF_THIS_TERMINAL="1")
    other = warmth.run("go.py", cwd=tmp_path, OF_THIS_TERMINAL="2")
    assert (log_of(other), warmth.forked()) == ("2\n", 1), warmth.state()
    assert warmth.template(), "there is one"
    warmth.run("go.py", cwd=tmp_path, MKL_NUM_THREADS="3")
    assert warmth.forked() == 1, "a library in C may have looked at that one"


def test_a_walk_through_all_variables_looks_at_those_that_it_is_after(warmth: Warmth, tmp_path: Path) -> None:
    """Of tqdm, which torch imports, that is known: those that begin with TQDM_, be they there or not."""
    text = (
        "import os, torch\nfrom tqdm import tqdm\nprint(tqdm(range(3)).disable, os.environ.get('OF_THIS_TERMINAL'))\n"
    )
    (tmp_path / "go.py").write_text(text)
    warmth.warm_up("go.py", cwd=tmp_path, OF_THIS_TERMINAL="1")
    assert log_of(warmth.run("go.py", cwd=tmp_path, OF_THIS_TERMINAL="2")).split()[-2:] == ["False", "2"]
    assert warmth.forked() == 1, warmth.state()
    assert log_of(warmth.run("go.py", cwd=tmp_path, TQDM_DISABLE="1")).split()[-2] == "True"
    assert warmth.forked() == 1, "tqdm has looked"


@pytest.fixture
def place() -> Iterator[str]:
    """A folder with a short path, as a socket's has to be."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        yield name


def test_scripts_beside_which_it_is_started_are_not_taken_for_modules(tmp_path: Path, place: str) -> None:
    (tmp_path / "selectors.py").write_text("raise SystemExit('mine')")
    (tmp_path / "allranks").mkdir()
    (tmp_path / "allranks" / "__init__.py").write_text("raise SystemExit('mine too')")
    for more in ([], ["--stop"]):  # -P: as the installed command, which does not look into the working folder either
        words = [sys.executable, "-P", "-m", "allranks", "warm", *more]
        here = {"cwd": tmp_path, "env": environ(XDG_RUNTIME_DIR=place)}
        done = subprocess.run(words, **here, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_two_that_are_started_at_once_are_one(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        words = {"cwd": tmp_path, "env": environ(XDG_RUNTIME_DIR=name), "stdout": subprocess.PIPE}
        both = [subprocess.Popen(command("warm", "--json"), **words) for _ in range(2)]  # type: ignore[call-overload]
        keepers = {json.loads(one.communicate()[0])["pid"] for one in both}
        assert len(keepers) == 1
        assert allranks("warm", "--stop", cwd=tmp_path, XDG_RUNTIME_DIR=name).returncode == 0
        wait_until(lambda: not any(map(is_alive, keepers)), 5)
        assert not is_alive_in(name), "the other one has ended by itself"


def test_a_keeper_that_is_just_ending_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is gone at once, and then its templates are ended."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        Path(name, "allranks").mkdir()
        ending = "import fcntl, sys, time; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, 2); print(flush=True); time.sleep(1)"
        words = [sys.executable, "-c", ending, f"{name}/allranks/warm.lock"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as keeper:
            assert keeper.stdout
            keeper.stdout.readline()
            open_listener().close()
            assert keeper.wait(5) == 0


def is_alive_in(folder: str) -> bool:
    """Whether a process listens below a folder."""
    return any(line.split()[-1].startswith(folder) for line in Path("/proc/net/unix").read_text().splitlines())


def test_who_has_no_home_and_no_way_into_the_runtime_folder_runs_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert not is_keeper_there()
    with pytest.raises(CannotRunHereError, match="no home folder"):
        open_listener()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/self/mem/x")
    assert not is_keeper_there()
