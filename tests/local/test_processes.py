"""The engine reaps what its ranks leave behind, and none of the children of the script that it runs in."""

from __future__ import annotations

import subprocess
import sys
import threading

from allranks.local import processes
from allranks.local.signals import caught_signals
from tests.local.support import wait_for


def test_the_children_of_the_script_around_it_are_left_to_it() -> None:
    """`allranks.run` took the end of a child that the user's script had started: its exit code 1 became 0."""
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]) as child:
        wait_for(lambda: processes.is_zombie(child.pid))
        processes.sweep_orphans(set(), [])
        assert child.wait() == 1


def test_another_thread_than_the_first_may_run_a_pipeline() -> None:
    """`allranks.run` in a thread was a traceback, since signals cannot be caught there, and the run stayed running."""
    found = []

    def enter() -> None:
        with caught_signals(found.append) as descriptor:
            found.append(descriptor)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(found) == 1
