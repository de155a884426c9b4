"""Ctrl-C prints nothing into the live table, and the terminal's modes are as before however the run ends."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONG = "type: pipeline\njobs:\n  wait:\n    command: sleep 60\n    environment: {image: x}\n"
LEADER = '"$@"; sleep 60'  # a shell, as it would be: when the leader of its session ends, the terminal is hung up
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A terminal in which a shell runs a pipeline."""

    def __init__(self, folder: Path) -> None:
        (folder / "long.yaml").write_text(LONG)
        self.ours, theirs = pty.openpty()
        command = [sys.executable, "-c", ON_TERMINAL, "sh", "-c", LEADER, "sh"]
        self.shell = subprocess.Popen(
            [*command, sys.executable, "-m", "allranks", "run", "long.yaml"],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
        )
        os.close(theirs)
        self.shown = b""

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.ours)[3] & termios.ECHOCTL)

    def wait_for(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not reached():
            assert time.monotonic() < end, self.shown
            if select.select([self.ours], [], [], 0.1)[0]:
                self.shown += os.read(self.ours, 65536)

    def run_pid(self) -> int:
        return int(Path(f"/proc/{self.shell.pid}/task/{self.shell.pid}/children").read_text().split()[0])


@pytest.mark.parametrize("end", ["ctrl-c", "kill"])
def test_the_terminal_echoes_no_control_character_while_the_table_stands_and_does_afterwards(
    tmp_path: Path, end: str
) -> None:
    terminal = Terminal(tmp_path)
    try:
        assert terminal.echoes
        terminal.wait_for(lambda: b"running" in terminal.shown)
        assert not terminal.echoes
        if end == "ctrl-c":
            os.write(terminal.ours, b"\x03")
        else:
            os.kill(terminal.run_pid(), signal.SIGKILL)
        terminal.wait_for(lambda: terminal.echoes and b"\x1b[?25h" in terminal.shown)  # which shows the cursor
    finally:
        os.killpg(terminal.shell.pid, signal.SIGKILL)
        terminal.shell.wait()
        os.close(terminal.ours)
    assert b"^C" not in terminal.shown
