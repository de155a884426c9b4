"""Whether a process may be forked at all, and where a copy shows its variables; in a step's interpreter."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_ENDED_BY_FORK = frozenset({"jemalloc_bg_thd"})
"""Threads without which a copy works: jemalloc, in pyarrow, then gives memory back as it is asked for some; see
background_thread in https://jemalloc.net/jemalloc.3.html."""
ROOM = "ALLRANKS_ENVIRON_ROOM"
"""The last variable of a template, whose text is there to be written over."""


class CannotForkError(Exception):
    """No rank may be forked; the text says why."""


class StaleImportsError(CannotForkError):
    """Nor will one ever be, since what was imported is not what a new interpreter would import."""


def refuse_threads() -> None:
    """Raise CannotForkError where a copy would lack threads of the imports, or share a device with the others."""
    pid = os.fork()  # OpenBLAS and OpenMP end their threads for a fork, and begin them anew when they are needed
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = [one for task in Path("/proc/self/task").iterdir() if (one := _thread_name(task)) not in _ENDED_BY_FORK]
    if len(threads) > 1:
        raise CannotForkError(f"the imports have started threads: {', '.join(sorted(threads))}")
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            opened = entry.readlink()
            if stat.S_ISCHR(entry.stat().st_mode) and str(opened) != os.devnull:
                raise CannotForkError(f"the imports have opened {opened}")


def refuse_limits(request: Mapping[str, Any]) -> None:
    """Raise CannotForkError where a copy could not have these limits, or imports have gone by others.

    Libraries make as many threads as there were cores, and these as large as the stack was allowed to be.
    """
    for number, (soft, hard) in request["limits"]:
        own = resource.getrlimit(number)
        if number == resource.RLIMIT_STACK and own[0] != soft:
            raise CannotForkError("stacks may have another size")
        if own[1] != hard and own[1] != resource.RLIM_INFINITY and (hard == resource.RLIM_INFINITY or hard > own[1]):
            raise CannotForkError("what it was started from has higher limits")
    if sorted(os.sched_getaffinity(0)) != request["cores"]:
        raise CannotForkError("it has other cores")


def refuse_hooks() -> None:
    """Raise CannotForkError where a module that ran before this one may have gone by variables of its process."""
    for name in ("sitecustomize", "usercustomize"):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path is not None and b"environ" in Path(path).read_bytes():
            raise CannotForkError(f"{path} looks at variables")


def _thread_name(task: Path) -> str:
    with contextlib.suppress(OSError):
        return (task / "comm").read_text().strip()
    return ""


class EnvironRoom:
    """The text of the last variable, which a rank writes its own over: /proc/PID/environ shows that place."""

    def __init__(self) -> None:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # env_start and env_end: 50 and 51 in proc(5)
        text = ctypes.string_at(start, end - start) if end > start else b""
        at = text.find(ROOM.encode() + b"=")
        if at < 0:
            raise CannotForkError("a rank's variables could not be shown")
        self._address, self._size = start + at, text.index(b"\0", at) - at
        os.environ.pop(ROOM, None)  # the text stays

    def fill(self, variables: Mapping[str, str]) -> bytes:
        """The text for these variables; raises CannotForkError where it is too long."""
        text = b"\0".join(os.fsencode(f"{name}={value}") for name, value in variables.items())
        if len(text) >= self._size:
            raise CannotForkError("its variables are too long")
        return text.ljust(self._size, b"\0")

    def show(self, text: bytes) -> None:
        """Write what ``fill`` gave."""
        ctypes.memmove(self._address, text, self._size)


def show_arguments(words: Sequence[str]) -> None:
    """Write the words of a command over those of this process, as far as they have room: who looks for it finds it."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end: 48 and 49 in proc(5)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)[: max(0, end - start - 1)]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
