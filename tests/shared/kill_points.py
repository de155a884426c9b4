"""Kill a process before each of its changes of files, one after the other."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any


def killed_at_each_change(act: Callable[[], object]) -> Iterator[int]:
    """Fork processes that act, and yield when each has ended: the n-th is killed before its n-th change of files.

    The last one makes all its changes. The process that calls this has no threads.
    """
    for number in itertools.count(1):
        pid = os.fork()
        if pid == 0:
            _die_before_change(number)
            act()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL)
        yield number
        if code == 0:
            return


def _die_before_change(number: int) -> None:
    changes = itertools.count(1)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if _changes_files(event, args) and next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def _changes_files(event: str, args: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool(args[2] & (os.O_WRONLY | os.O_RDWR))
    return event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate")
