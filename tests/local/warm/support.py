"""A keeper of a test's own, and runs that may fork their ranks from it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.cli.kept_engine import ENGINE_IMPORTS
from tests.local.support import allranks, command, environ


@dataclass(frozen=True)
class Warmth:
    """Where the keeper of a test listens: ``place`` is the value of XDG_RUNTIME_DIR."""

    place: Path

    def state(self) -> dict[str, Any]:
        """What ``allranks warm --show --json`` says."""
        done = allranks("warm", "--show", "--json", cwd=self.place, XDG_RUNTIME_DIR=str(self.place))
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def _variables(self) -> dict[str, str]:
        """Those of a run; pytest's own differs between a fixture and its test."""
        return {"XDG_RUNTIME_DIR": str(self.place), "PYTEST_CURRENT_TEST": ""}

    def run(self, *arguments: str | Path, cwd: Path, **extra: str) -> dict[str, Any]:
        """`allranks run --json --no-cache …`, its document, with the exit code under ``exit``."""
        options = ("run", "--json", "--no-cache")
        done = allranks(*options, *arguments, cwd=cwd, **self._variables, **extra)
        assert "Traceback" not in done.stderr, done.stderr
        return {**json.loads(done.stdout), "exit": done.returncode}

    def start(self, *arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
        """The same, which goes on."""
        return subprocess.Popen(
            command("run", "--json", "--no-cache", *arguments),
            cwd=cwd,
            env=environ(**self._variables),
            stdout=subprocess.PIPE,
            text=True,
        )

    def warm_up(self, *arguments: str | Path, cwd: Path, **extra: str) -> dict[str, Any]:
        """Run once, as ever, and wait until what it imports is ready for the next run."""
        result = self.run(*arguments, cwd=cwd, **extra)
        for _ in range(600):
            templates = self.state()["templates"]
            if templates and all(one["ready"] for one in templates):
                return result
            time.sleep(0.05)
        raise AssertionError(self.state())

    def forked(self) -> int:
        """How many ranks were forked so far."""
        return int(self.state()["forked"])

    def template(self) -> int:
        """The process of the one template for ranks."""
        (one,) = (one for one in self.state()["templates"] if one["modules"] != [ENGINE_IMPORTS])
        return int(one["pid"])

    def engines(self) -> int:
        """How many runs a kept process has done so far."""
        return int(self.state()["engines"])


def log_of(result: dict[str, Any], rank: int = 0) -> str:
    """What a rank of a script has printed."""
    logs = sorted(Path(result["run_dir"]).glob("steps/*/user_logs/std_log*"))
    return logs[rank].read_text()


def is_alive(pid: int) -> bool:
    """Whether a process runs, zombies aside."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until(check: Any, seconds: float = 20.0, every: float = 0.05) -> None:
    """Wait for something to become true, and look so often."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "not within the time"
        time.sleep(every)
