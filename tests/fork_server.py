"""A process that has imported frameworks once and forks a rank for each request; tests/forks.py starts it and says why.

A rank is what a new interpreter would be: a process and a session of its own, with the variables, the folder, the
arguments and the files of the request, and it ends through the interpreter's own end. Only the imports are there already.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import selectors
import signal
import socket
import struct
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ENDED = struct.Struct("=id")
"""What is told of a rank that has ended: the status of ``os.wait4`` and the seconds of processor that it took."""


def become_rank(request: dict[str, Any], out: int, err: int, report: int) -> Path:
    """Turn the forked copy into the rank of a request; the script that it is to run."""
    os.setsid()
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    os.write(report, struct.pack("=i", os.getpid()))  # after setsid: whoever knows the number may kill the session
    os.close(report)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    script, *arguments = request["command"]
    sys.argv = [script, *arguments]
    paths = [entry for entry in request["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = dict.fromkeys([request["path"], *paths, *sys.path])
    importlib.invalidate_caches()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules[
            "numpy"
        ].random.seed()  # or all ranks of all tests would draw the same numbers where they should not
    return Path(script)


def serve(control: socket.socket) -> Path:
    """Fork for each request until nobody asks any more; returns in the ranks alone."""
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    reports: dict[int, tuple[int, int]] = {}  # the handle of a rank: its number, and where its end is told
    while True:
        for key, _ in waiting.select():
            if key.fileobj is control:
                message, (out, err, report), _, _ = receive(control)
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    control.close()
                    for handle, (_, other) in reports.items():
                        os.close(handle)
                        os.close(other)
                    return become_rank(json.loads(message), out, err, report)
                os.close(out)
                os.close(err)
                handle = os.pidfd_open(pid)
                reports[handle] = (pid, report)
                waiting.register(handle, selectors.EVENT_READ)
            else:
                waiting.unregister(key.fd)
                pid, report = reports.pop(key.fd)
                os.close(key.fd)
                _, status, used = os.wait4(pid, 0)
                with suppress(BrokenPipeError):  # the test that asked may have gone
                    os.write(report, ENDED.pack(status, used.ru_utime + used.ru_stime))
                os.close(report)


def receive(control: socket.socket) -> tuple[bytes, list[int], int, Any]:
    """One request and its three files; ends the process when nobody can ask any more."""
    message, files, flags, address = socket.recv_fds(control, 1 << 20, 3)
    if not message:
        end()
    return message, files, flags, address


def end() -> NoReturn:
    """Leave without the frameworks' own ends, which take a second."""
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is pytest's, which closes the socket
    for name in sys.argv[2:]:
        importlib.import_module(name)
    del sys.path[0]  # this folder
    gc.collect()
    gc.freeze()
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    assert len(names) == 1, f"a fork would lose threads: {names}"
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(program), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(program.read_bytes(), str(program), "exec"), module.__dict__)  # noqa: S102
