"""A run that a kept process does is what it would be here: what it says, how it ends, and what becomes of it."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.kept_engine import ENGINE_IMPORTS
from allranks.local.processes import children_of
from tests.local.support import ROOT, allranks, command, environ
from tests.local.warm.support import Warmth, is_alive, wait_until

SLEEPS = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit("saved"))
Path(f"{os.getpid()}.pid").touch()
while not Path("go").exists():
    time.sleep(0.02)
print("went on")
"""


@pytest.fixture
def kept(warmth: Warmth, tmp_path: Path) -> Warmth:
    """A keeper whose process for runs is ready, and a script in the test's folder."""
    (tmp_path / "sleeps.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{SLEEPS}")
    warmth.warm_up("sleeps.py", "--dry-run", cwd=tmp_path)
    assert warmth.engines() == 0
    return warmth


def engine_template(kept: Warmth) -> int:
    """The process that engines are forked from."""
    (pid,) = (one["pid"] for one in kept.state()["templates"] if one["modules"] == [ENGINE_IMPORTS])
    return int(pid)


def started(kept: Warmth, folder: Path, **more: Any) -> tuple[subprocess.Popen[str], int, int]:
    """A run of the script that waits: who waits for it, its engine, its rank."""
    for file in folder.glob("*.pid"):
        file.unlink()
    asked = command("run", "sleeps.py", "--retries", "0", "--no-cache")
    variables = environ(XDG_RUNTIME_DIR=str(kept.place), PYTEST_CURRENT_TEST="")
    waits = subprocess.Popen(asked, cwd=folder, env=variables, text=True, **more)
    wait_until(lambda: list(folder.glob("*.pid")))
    (engine,) = children_of(engine_template(kept))
    (rank,) = folder.glob("*.pid")
    return waits, engine, int(rank.stem)


def said(kept: Warmth, arguments: Sequence[str], folder: Path, **more: Any) -> list[Any]:
    """Exit code and texts of a command line that a kept process does, and of one that is done here."""
    found: list[Any] = []
    for variables in ({"XDG_RUNTIME_DIR": str(kept.place)}, {"XDG_RUNTIME_DIR": str(folder)}):
        done = subprocess.run(
            command(*arguments),
            cwd=folder,
            env=environ(**variables, PYTEST_CURRENT_TEST=""),
            capture_output=True,
            text=True,
            check=False,
            **more,
        )
        found.append((done.returncode, done.stdout, done.stderr))
    return found


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "--help"), 0),
        (("run", "sleeps.py", "--dry-run", "--json", "--", "ü", "two words", ""), 0),
        (("run", "slepes.py"), 2),
        (("run", "sleeps.py", "--scale", "2x"), 2),
        (("run", "--wrong"), 2),
    ],
)
def test_it_says_and_returns_the_same(kept: Warmth, tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    here, there = said(kept, arguments, tmp_path)
    assert kept.engines() == 1
    assert here == there
    assert here[0] == code


def test_its_surroundings_are_those_of_who_asked(kept: Warmth, tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(
        "import json, os, resource\n"
        "umask = os.umask(0)\n"
        "print(json.dumps([os.environ['GIVEN'], umask, resource.getrlimit(resource.RLIMIT_CORE), os.getcwd()]))\n"
    )

    def changed() -> None:
        os.umask(0o27)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 4096))

    arguments = ("run", "looks.py", "--no-cache")
    variables = environ(XDG_RUNTIME_DIR=str(kept.place), PYTEST_CURRENT_TEST="", GIVEN="ü \udcff")
    done = subprocess.run(
        command(*arguments), cwd=tmp_path, env=variables, capture_output=True, preexec_fn=changed, check=True
    )
    assert kept.engines() == 1
    (line,) = (line for line in done.stdout.decode().splitlines() if line.startswith("["))
    given, umask, core, _ = json.loads(line)
    assert (given, umask, core) == ("ü \udcff", 0o27, [0, 4096])


@pytest.mark.parametrize("victim", ["who waits", "engine"])
def test_one_is_killed_and_nothing_stays(kept: Warmth, tmp_path: Path, victim: str) -> None:
    waits, engine, rank = started(kept, tmp_path)
    os.kill(engine if victim == "engine" else waits.pid, signal.SIGKILL)
    assert waits.wait(10) == -signal.SIGKILL
    wait_until(lambda: not is_alive(engine) and not is_alive(rank), 5)
    assert is_alive(engine_template(kept)), "the next run may have it"


def test_who_waits_is_killed_before_the_engine_has_its_streams(kept: Warmth, tmp_path: Path) -> None:
    template = engine_template(kept)
    for delay in range(8):
        waits = subprocess.Popen(
            command("run", "sleeps.py", "--dry-run"),
            cwd=tmp_path,
            env=environ(XDG_RUNTIME_DIR=str(kept.place), PYTEST_CURRENT_TEST=""),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.05 + 0.02 * delay)
        waits.kill()
        waits.wait()
    wait_until(lambda: not children_of(template), 5)


@pytest.mark.parametrize("ended", ["keeper", "template", "stop"])
def test_a_run_goes_on_when_what_it_was_forked_from_is_ended(kept: Warmth, tmp_path: Path, ended: str) -> None:
    waits, engine, rank = started(kept, tmp_path, stdout=subprocess.PIPE)
    if ended == "stop":
        assert allranks("warm", "--stop", cwd=tmp_path, XDG_RUNTIME_DIR=str(kept.place)).returncode == 0
    else:
        os.kill(engine_template(kept) if ended == "template" else kept.state()["pid"], signal.SIGKILL)
    time.sleep(0.3)
    (tmp_path / "go").touch()
    assert "went on" in waits.communicate(timeout=20)[0]
    assert waits.returncode == 0
    assert not is_alive(engine)
    assert not is_alive(rank)


def read_terminal(ours: int, until: bytes, seconds: float = 30.0) -> bytes:
    """What a terminal shows, up to some text."""
    shown, end = b"", time.monotonic() + seconds
    while until not in shown:
        assert select.select([ours], [], [], end - time.monotonic())[0], shown
        try:
            shown += os.read(ours, 1 << 16)
        except OSError:  # its other end is closed
            break
    return shown


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_ctrl_c_and_ctrl_z_in_a_terminal(kept: Warmth, tmp_path: Path) -> None:
    """The terminal tells who waits alone; the engine is in no session of it."""
    for file in tmp_path.glob("*.pid"):
        file.unlink()
    pid, ours = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        variables = environ(XDG_RUNTIME_DIR=str(kept.place), PYTEST_CURRENT_TEST="", TERM="xterm")
        os.execve(sys.executable, command("run", "sleeps.py", "--retries", "0", "--no-cache"), variables)  # noqa: S606
    wait_until(lambda: list(tmp_path.glob("*.pid")))
    (engine,) = children_of(engine_template(kept))
    os.write(ours, b"\x1a")
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    wait_until(lambda: is_stopped(engine), 5)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not is_stopped(engine), 5)
    os.write(ours, b"\x03")
    shown = read_terminal(ours, b"cancelled")
    assert b"saved" in shown
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert not is_alive(engine)
    os.close(ours)


HOLDS_MUCH = """
import mmap, os, sys
from allranks.cli import kept_engine

def main():
    global held
    held = mmap.mmap(-1, 1 << 30)
    held.madvise(mmap.MADV_NOHUGEPAGE)
    for start in range(0, len(held), mmap.PAGESIZE):
        held[start] = 1
    print(os.getpid())
    return 3

if __name__ == "__main__":
    ask = kept_engine._question
    kept_engine._question = lambda keeper: (asked := ask(keeper)) | {"request": asked["request"] | {"main": "held:main"}}
    sys.exit(kept_engine.run_in_kept_engine())
"""


def test_nothing_is_left_of_an_engine_when_its_end_is_told(kept: Warmth, tmp_path: Path) -> None:
    """The kernel takes its time to free a GiB in small pages, longer than who waits needs to end."""
    (tmp_path / "held.py").write_text(HOLDS_MUCH)
    variables = environ(XDG_RUNTIME_DIR=str(kept.place), PYTEST_CURRENT_TEST="")
    asked = [sys.executable, "held.py"]
    done = subprocess.run(asked, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert not is_alive(int(done.stdout))
    assert done.returncode == 3, done.stderr


WAITS = """
import os, socket, sys
from allranks.cli.kept_engine import _Signals

report = socket.socket(fileno=int(sys.argv[2]))
with _Signals() as signals:
    signals.forward_to(os.pidfd_open(int(sys.argv[1])))
    os.write(1, b"ready")
    signals.wait_for(report)
"""


@pytest.mark.exhaustive
def test_no_signal_waits_for_the_next_one() -> None:
    """One that comes while another is passed on; a wait in a blocking read alone loses 4 of 30,000."""
    come: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: come.append(number))
    report, theirs = socket.socketpair()
    arguments = [sys.executable, "-c", WAITS, str(os.getpid()), str(theirs.fileno())]
    with (
        report,
        theirs,
        subprocess.Popen(arguments, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, env=environ()) as waits,
    ):
        assert waits.stdout is not None
        waits.stdout.read(5)
        drawn = random.Random(0)
        try:
            for _ in range(30_000):
                come.clear()
                os.kill(waits.pid, signal.SIGWINCH)
                end = time.perf_counter() + drawn.random() * 60e-6
                while time.perf_counter() < end:
                    pass
                os.kill(waits.pid, signal.SIGUSR1)
                wait_until(lambda: come, 5, every=0.0002)
        finally:
            waits.kill()
            signal.signal(signal.SIGUSR1, before)


def test_a_run_that_is_done_here_for_good_reasons(kept: Warmth, tmp_path: Path) -> None:
    variables = environ(XDG_RUNTIME_DIR=str(kept.place), PYTEST_CURRENT_TEST="")
    here = [sys.executable, "-X", "dev", "-m", "allranks", "run", "sleeps.py", "--dry-run"]
    subprocess.run(here, cwd=tmp_path, env=variables, check=True, capture_output=True)
    closed = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command("run", "sleeps.py", "--dry-run")]
    subprocess.run(closed, cwd=tmp_path, env=variables, check=True, capture_output=True)
    assert kept.engines() == 0


@pytest.mark.slow
def test_another_installation_or_a_changed_one_has_its_own(warmth: Warmth, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "allranks", copy / "allranks", ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "allranks/cli/run.py"

    def help_of(place: Path) -> str:
        variables = {**environ(XDG_RUNTIME_DIR=str(warmth.place), PYTEST_CURRENT_TEST=""), "PYTHONPATH": str(place)}
        asked = command("run", "--help")
        done = subprocess.run(asked, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
        wait_until(lambda: all(one["ready"] for one in warmth.state()["templates"]))
        return done.stdout

    first = [help_of(ROOT), help_of(ROOT)]
    assert (first[0], warmth.engines()) == (first[1], 1)
    file.write_text(file.read_text().replace("def add_arguments(", "def add_arguments(", 1) + "\n# changed\n")
    assert help_of(copy) == help_of(copy) == first[0]
    text = file.read_text()
    assert text.count('"--resume"') >= 1
    time.sleep(0.6)  # so long the last look at the files counts
    file.write_text(text.replace('"--resume"', '"--resume-now"', 1))
    assert "--resume-now" in help_of(copy)
    assert "--resume-now" in help_of(copy)
    assert "--resume-now" not in help_of(ROOT)
