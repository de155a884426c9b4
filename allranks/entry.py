"""Where the command line begins: a run goes to a process that has imported all, where `allranks warm` keeps one."""

from __future__ import annotations

import os
import sys


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as after ``<&-``.

    Otherwise the next file or socket gets its number, and a child process cannot inherit it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the lowest free descriptor is the stream's own
            stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: PTH123, SIM115 it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def main() -> int:
    """What ``allranks`` was asked for; its exit code."""
    open_missing_streams()
    if sys.argv[1:2] == ["run"] and sys.platform == "linux":
        from allranks.cli.kept_engine import run_in_kept_engine

        code = run_in_kept_engine()
        if code is not None:
            return code
    from allranks.cli.main import main as run_here

    return run_here()
