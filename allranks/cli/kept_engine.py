"""The command line's side: gives a run to a process of this user's keeper that has the engine imported, and waits.

That process is forked for this run. It has this one's terminal, variables, folder and limits, gets the signals that
this one gets, and is killed when this one is. It is no child of the keeper's for its end: the run goes on where the
keeper or what it was forked from is ended. Where there is any doubt nothing is given away, and the run happens here.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from types import FrameType
from typing import Any, Self

import allranks
from allranks.local.warm.address import connect_keeper, is_keeper_there, peer_of
from allranks.local.warm.context import process_context, process_state
from allranks.local.warm.messages import STARTED

ENGINE_IMPORTS = "allranks.cli.engine_imports"
_PATIENCE = 2.0  # seconds for a keeper that has not answered: it may have been stopped
_CODE = struct.Struct("=i")  # as forked_engine.py does
_FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH),
)
_OF_ENGINES = ("PATH", "HOME", "VIRTUAL_ENV", "LANG", "LANGUAGE", "TZ")
_BEGINS_OF_ENGINES = ("PYTHON", "LC_", "XDG_")
"""Variables by which templates for engines differ; where imports look at another one that is not the same, none is
used."""


def run_in_kept_engine() -> int | None:
    """Have this command done by a kept process; its exit code, or None where this one has to do it."""
    if not is_keeper_there() or not _is_plain():
        return None
    keeper = connect_keeper()
    if keeper is None:
        return None
    with keeper, _Signals() as signals:
        life, ours = os.pipe()
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with report:
            try:
                message = json.dumps(_question(keeper)).encode()
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(1 << 18, 2 * len(message)))
                socket.send_fds(keeper, [message], [theirs.fileno()])
                theirs.close()
                handle = _started(report)
                socket.send_fds(report, [b"go"], [0, 1, 2, life])  # it waits for them; only from now on it is asked
            except OSError:
                os.close(ours)
                return None
            finally:
                os.close(life)
                theirs.close()
            signals.forward_to(handle)
            signals.wait_for(report)
            told = report.recv(_CODE.size)
            _wait_for_end(handle)
    if len(told) == _CODE.size:
        return int(_CODE.unpack(told)[0])
    ended_by = signals.last_deadly or signal.SIGKILL
    if ended_by != signal.SIGKILL:
        signal.signal(ended_by, signal.SIG_DFL)
    os.kill(os.getpid(), ended_by)  # as the engine was
    return 128 + ended_by


def _is_plain() -> bool:
    """Whether another process can stand for this one: not where Python has options, or descriptors are named."""
    options = sys.orig_argv[1:3]
    if options[:1] and options[0].startswith("-") and options != ["-m", "allranks"]:
        return False
    if any("/dev/fd/" in one or "/proc/" in one for one in sys.argv) or threading.active_count() > 1:
        return False
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return False
    try:
        for number in (0, 1, 2):
            os.fstat(number)
        os.getcwd()  # noqa: PTH109
    except OSError:
        return False
    return True


def _question(keeper: socket.socket) -> dict[str, Any]:
    environ = dict(os.environ)
    umask = os.umask(0o77)
    os.umask(umask)
    request = {
        "engine": allranks.__file__,
        "main": "allranks.cli.main:main",
        "env": environ,
        "cwd": os.getcwd(),  # noqa: PTH109
        "argv": sys.orig_argv,
        "arguments": sys.argv,
        "path": sys.path,
        "beside": [],
        "named": [],
        "silences": False,
        "umask": umask,
        **process_state(),
    }
    chosen = {
        name: value for name, value in environ.items() if name in _OF_ENGINES or name.startswith(_BEGINS_OF_ENGINES)
    }
    spec = {
        "interpreter": sys.executable,
        "flags": [],
        "installed": " ".join(f"{path} {_changed(path)}" for path in sys.path if path.endswith("-packages")),
        "variables": chosen,
        "modules": [ENGINE_IMPORTS],
    }
    return {"do": "fork", "spec": spec, "request": request, "context": _context(keeper)}


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


def _context(keeper: socket.socket) -> dict[str, Any]:
    """What the keeper must have in common; its memory's limit is looked up only where its control group is another."""
    pid, _ = peer_of(keeper)
    return process_context(with_memory=_groups("self") != _groups(str(pid)))


def _groups(process: str) -> str:
    try:
        with open(f"/proc/{process}/cgroup") as file:  # noqa: PTH123 pathlib would be imported for it
            return file.read()
    except OSError:
        return process


def _started(report: socket.socket) -> int:
    """The handle of the engine; raises OSError where there is none."""
    report.settimeout(_PATIENCE)
    message, files, _, _ = socket.recv_fds(report, 1 << 12, 1)
    if not files or len(message) < STARTED.size or not STARTED.unpack(message[: STARTED.size])[0]:
        raise ConnectionError
    report.settimeout(None)
    return files[0]


def _wait_for_end(handle: int) -> None:
    """Until the engine has given back all that it holds; one that cannot even end is waited for no longer."""
    watched = select.poll()
    watched.register(handle, select.POLLIN)
    watched.poll(_PATIENCE * 1000)


class _Signals:
    """Passes on to the engine what this process is told by signals.

    Attributes:
        last_deadly: the last one that was passed on which ends a process that does not expect it.
    """

    def __init__(self) -> None:
        self.last_deadly: signal.Signals | None = None
        self._handle: int | None = None
        self._early: list[int] = []
        self._before: dict[signal.Signals, Any] = {}
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for one in _FORWARDED:
            if signal.getsignal(one) is not signal.SIG_IGN:
                self._before[one] = signal.signal(one, self._pass_on)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            self._before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._pause)
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._woken)
        os.close(self._wakes)
        if self._handle is None:
            for number in self._early:
                os.kill(os.getpid(), number)

    def forward_to(self, handle: int) -> None:
        """From now on; what has come before is passed on at once."""
        self._handle = handle
        for number in self._early:
            self._send(number)

    def wait_for(self, report: socket.socket) -> None:
        """Wait until there is something to read.

        A signal that comes just before a blocking read would have its handler run after it: it wakes this.
        """
        watched = select.poll()
        for one in (report.fileno(), self._woken):
            watched.register(one, select.POLLIN)
        while report.fileno() not in (ready := [number for number, _ in watched.poll()]):
            os.read(ready[0], 1 << 12)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._handle is None:
            self._early.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        if number not in (signal.SIGWINCH, signal.SIGSTOP, signal.SIGCONT):
            self.last_deadly = signal.Signals(number)
        try:
            signal.pidfd_send_signal(self._handle or -1, number)
        except OSError:  # it has ended
            return

    def _pause(self, _number: int, _: FrameType | None) -> None:
        """Ctrl-Z: both are stopped, and go on together."""
        if self._handle is not None:
            self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._handle is not None:
            self._send(signal.SIGCONT)
