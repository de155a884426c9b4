"""How a forked copy of a template becomes the engine of a run that somebody waits for in another process."""

from __future__ import annotations

import atexit
import fcntl
import io
import os
import pkgutil
import resource
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

_CODE = struct.Struct("=i")
_F_SETSIG = 10  # <fcntl.h>


def become_engine(request: Mapping[str, Any], told: int) -> None:
    """Take over the terminal, limits and signals of the process that waits; the kernel ends this one with it.

    That process hands them over now, if it has not given up meanwhile and does the run itself.
    """
    os.setsid()
    with socket.socket(fileno=os.dup(told)) as report:
        _, streams, _, _ = socket.recv_fds(report, 16, 4)
    if not streams:
        os._exit(1)
    life = streams.pop()
    os.set_inheritable(life, False)
    fcntl.fcntl(life, _F_SETSIG, int(signal.SIGKILL))
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_RDONLY | os.O_ASYNC)
    watched = select.poll()
    watched.register(life, select.POLLIN)
    if watched.poll(0):
        os._exit(1)  # it was killed before the kernel was asked
    for target, source in enumerate(streams):
        os.dup2(source, target)
        os.close(source)
    for name, limits in request["limits"]:
        resource.setrlimit(name, tuple(limits))
    os.umask(request["umask"])


def run_engine(request: Mapping[str, Any], told: int) -> NoReturn:
    """Do what the command line says, and tell the exit code."""
    sys.path[:] = request["path"]
    sys.argv[:], sys.orig_argv[:] = request["arguments"], request["argv"]
    _open_streams(unbuffered=bool(request["env"].get("PYTHONUNBUFFERED")))
    code = _code_of(pkgutil.resolve_name(request["main"]))
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 as Python's own end does
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    with socket.socket(fileno=told) as report:
        report.send(_CODE.pack(code))
    os._exit(code & 0xFF)


def _code_of(main: Callable[[], int]) -> int:
    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 it is shown, as Python shows it
        traceback.print_exc()
        return 1


def _open_streams(*, unbuffered: bool) -> None:
    """The standard streams as Python opens them; https://docs.python.org/3/library/sys.html#sys.stdin."""
    names = (("stdin", "r", "strict"), ("stdout", "w", "strict"), ("stderr", "w", "backslashreplace"))
    for number, (name, mode, errors) in enumerate(names):
        before = getattr(sys, name)
        binary: Any = open(number, f"{mode}b", closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            binary,
            encoding=before.encoding,
            errors=before.errors if name != "stderr" else errors,
            line_buffering=name == "stderr" or binary.isatty(),
            write_through=unbuffered and mode == "w",
        )
        stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
