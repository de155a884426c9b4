"""Wait for other processes. No other module of the tests needs a clock; pytest-timeout bounds every wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

TIMEOUT = 300
"""Seconds for one subprocess, one connection or one set-up on a busy machine; the same as pytest's own in pyproject.toml."""


class Process(Protocol):
    """A `subprocess.Popen`, or a rank that was forked."""

    def poll(self) -> int | None:
        """Return the exit code; None while the process runs."""
        ...


def wait_for(condition: Callable[[], object], running: Iterable[Process] = ()) -> Any:
    """Wait until the condition holds, and return its value.

    Raises:
        AssertionError: one of the processes in `running` ended first.
    """
    processes = list(running)
    while True:
        ended = [process.poll() for process in processes]
        if value := condition():
            return value
        assert all(code is None for code in ended), f"a process ended before; exit codes {ended}"
        time.sleep(0.02)
