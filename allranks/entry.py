"""Where the command line begins: a run goes to a process that has imported all, where `allranks warm` keeps one."""

from __future__ import annotations

import sys

from allranks.files import open_missing_streams


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
