"""The engine reaps what its ranks leave behind, and none of the children of the script that it runs in."""

from __future__ import annotations

import subprocess
import sys

from allranks.local import processes
from tests.local.support import wait_for


def test_the_children_of_the_script_around_it_are_left_to_it() -> None:
    """`allranks.run` took the end of a child that the user's script had started: its exit code 1 became 0."""
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]) as child:
        wait_for(lambda: processes.is_zombie(child.pid))
        processes.sweep_orphans(set(), [])
        assert child.wait() == 1
