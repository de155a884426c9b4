"""A process that has imported frameworks once and forks a rank for each request. Runs in a step's interpreter, alone.

    python template.py CONTROL ROOM

CONTROL is the number of a socket, ROOM is room for the words of a rank's command. The first message on the socket says
what to import; the answer is ``{"ready": …}`` or ``{"failed": reason}``. Each further message asks for a rank and
brings two files: its log, and a socket on which its id and a handle of it are told, then how it ended. When the other
end of that socket is closed, the rank is killed. A message that asks for an engine brings that socket alone, on which
the engine then gets the standard streams and a pipe that ends it, and tells its exit code itself.

A rank is what a new interpreter would be: a process and a session of its own, with the variables, folder, arguments,
limits and files of the request, which ends through the interpreter's own end. Only the imports are there already. What
they have looked at (variables, files) is compared before each fork: where it differs, nothing is forked.
"""

from __future__ import annotations

import sys

_AT_START = frozenset(sys.modules)  # what no file beside a rank's script could stand in for

import array  # noqa: E402
import atexit  # noqa: E402
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import selectors  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_FRESH_SECONDS = 0.5  # so long files that were found unchanged are not looked at again: the ranks of a step


def _load_beside(name: str) -> Any:
    """A module of allranks that needs nothing of it, in an interpreter that does not know allranks."""
    path = Path(__file__).parent / name
    spec = importlib.util.spec_from_file_location(f"_allranks_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 it is a file of Python
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_messages, _forkable, _looks, _ranks, _engines, _inputs = (
    _load_beside("messages.py"),
    _load_beside("forkable.py"),
    _load_beside("looks.py"),
    _load_beside("forked_rank.py"),
    _load_beside("forked_engine.py"),
    _load_beside("../read_only.py"),
)
CannotForkError, StaleImportsError = _forkable.CannotForkError, _forkable.StaleImportsError


class Template:
    """What the imports have left behind."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.began = dict(os.environ)
        self.folder = os.getcwd()  # noqa: PTH109
        _forkable.refuse_hooks()
        self.read, self.printed = _import_all(modules)
        names = {*os.environ, *self.began}
        self.changed = {name: os.environ.get(name) for name in names if os.environ.get(name) != self.began.get(name)}
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        paths |= _settings_files()
        self.files = [(path, _file_state(path)) for path in paths if isinstance(path, str)]
        self.names = {name.partition(".")[0] for name in set(sys.modules) - _AT_START}
        self.libraries = _ranks.loaded_libraries()
        self.counts_leaks = _ranks.counts_leaks()
        self._looked = time.monotonic()

    def refuse(self, request: Mapping[str, Any]) -> None:
        """Raise CannotForkError where a rank would not be what a new interpreter is."""
        asked, began = request["env"], self.began
        differ = {name for name in {*asked, *began} if asked.get(name) != began.get(name)} - {"TMPDIR", "PWD"}
        if hit := sorted(name for name in differ if _looks.has_looked(self.read, name)):
            raise CannotForkError(f"the imports looked at {', '.join(hit)}")
        if hit := sorted(self.names.intersection(request["beside"])):
            raise CannotForkError(f"{', '.join(hit)} beside the script stands in for what was imported")
        if hit := sorted(name for name in request["named"] if _looks.has_looked(self.read, name)):
            raise CannotForkError(f"the script may set {', '.join(hit)}, at which the imports have looked")
        if self.printed and request["silences"]:
            raise CannotForkError("the imports have printed what the script may silence")
        _forkable.refuse_limits(request)
        engine = sys.modules.get("allranks")
        if request.get("engine") and getattr(engine, "__file__", None) != request["engine"]:
            raise CannotForkError(f"{request['engine']} is not what was imported")
        if time.monotonic() > self._looked + _FRESH_SECONDS:
            if any(_file_state(path) != state for path, state in self.files):
                raise StaleImportsError("what was imported has changed since")
            self._looked = time.monotonic()

    def variables(self, asked: Mapping[str, str]) -> dict[str, str]:
        """The rank's variables as the imports would have left them, with its own folder for temporary files."""
        scratch, own = self.began["TMPDIR"], asked.get("TMPDIR") or "/tmp"  # noqa: S108 what tempfile would take
        found = dict(asked)
        for name, value in self.changed.items():
            if value is None:
                found.pop(name, None)
            else:
                found[name] = value.replace(scratch, own)
        return found


def _import_all(modules: Sequence[str]) -> tuple[set[str], bytes]:
    """Import; at which variables was looked, and what was printed."""
    holder: Any = os.environ
    data = holder._data  # noqa: SLF001 there is no other way to learn of names that are not there
    recorder = holder._data = _looks.ReadVariables(data)  # noqa: SLF001
    with tempfile.TemporaryFile() as printed:
        for number in (1, 2):
            os.dup2(printed.fileno(), number)
        for module in modules:
            with contextlib.suppress(ModuleNotFoundError):  # the script says so itself
                importlib.import_module(module)
        sys.stdout.flush()
        sys.stderr.flush()
        printed.seek(0)
        text = printed.read()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)
    looks = {os.fsdecode(name) for name in recorder.looks}
    data.clear()
    data.update(recorder)
    holder._data = data  # noqa: SLF001
    return looks, text


def _settings_files() -> set[str]:
    """The files, there or not, from which imported modules take settings; that in a working folder aside."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return set()
    fonts = map(str, Path(matplotlib.get_cachedir()).glob("fontlist-*.json"))
    return {matplotlib.matplotlib_fname(), str(Path(matplotlib.get_configdir(), "matplotlibrc")), *fonts}


def _file_state(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 there are thousands
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class ForkServer:
    """Forks for each request until nobody asks any more and no rank runs."""

    def __init__(self, template: Template, room: Any, control: socket.socket) -> None:
        self._template, self._room, self._control = template, room, control
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        self._ranks: dict[int, socket.socket] = {}  # id: where its end is told
        self._waiting = selectors.DefaultSelector()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakened.fileno(), warn_on_full_buffer=False)
        for one in (control, self._waker):
            self._waiting.register(one, selectors.EVENT_READ)

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Returns in the copies alone: the request, and the files that a rank or an engine keeps."""
        is_asked = True
        while is_asked or self._ranks:
            for key, _ in self._waiting.select():
                if key.fileobj is self._waker:
                    self._waker.recv(4096)
                    self._reap()
                elif key.fileobj is not self._control:  # the engine is gone: it never writes
                    self._waiting.unregister(key.fileobj)
                    kill_group(key.data)
                elif rank := self._take_request():
                    return rank
                elif self._control.fileno() < 0:
                    is_asked = False
        os._exit(0)

    def _take_request(self) -> tuple[dict[str, Any], list[int]] | None:
        """Fork for one request; closes the control socket where there will be no more."""
        message, received, _, _ = socket.recv_fds(self._control, _messages.MOST_BYTES, _messages.MOST_FILES)
        if not message:
            self._retire()
            return None
        for file in received:
            os.set_inheritable(file, False)
        *files, report = received
        told = socket.socket(fileno=report)
        try:
            request = json.loads(message)
            _refuse_late(told)
            self._template.refuse(request)
            shown = self._room.fill(request["env"])
            pid = os.fork()
        except (CannotForkError, OSError) as error:
            _tell(told, _messages.STARTED.pack(0) + str(error).encode())
            _tell(self._control, str(error).encode())
            told.close()
            _close(files)
            if isinstance(error, StaleImportsError):
                self._retire()
            return None
        if pid == 0:
            self._leave()
            self._room.show(shown)
            _forkable.show_arguments(request["argv"])
            if request.get("engine"):
                return request, [*files, told.detach()]
            told.close()
            return request, files
        _close(files)
        handle = os.pidfd_open(pid)
        _tell(told, _messages.STARTED.pack(pid), [handle])
        _tell(self._control, _messages.FORKED_ENGINE if request.get("engine") else _messages.FORKED_RANK)
        os.close(handle)
        if request.get("engine"):
            told.close()
        else:
            self._ranks[pid] = told
            self._waiting.register(told, selectors.EVENT_READ, pid)
        return None

    def _retire(self) -> None:
        """Take no further requests."""
        self._waiting.unregister(self._control)
        self._control.close()

    def _leave(self) -> None:
        """Close, in a rank, what is the server's."""
        signal.set_wakeup_fd(-1)
        self._waiting.close()
        for one in (self._control, self._waker, self._wakened, *self._ranks.values()):
            one.close()

    def _reap(self) -> None:
        """Tell how ranks have ended and what they have used; what they left in their group ends with them."""
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = ended.si_pid
                told = self._ranks.pop(pid, None)
                if told is None:  # what a rank has left behind
                    os.waitpid(pid, 0)
                    continue
                kill_group(pid)
                line, io = (_read(f"/proc/{pid}/{name}") for name in ("stat", "io"))
                _, status, used = os.wait4(pid, 0)
                if told in self._waiting.get_map():
                    self._waiting.unregister(told)
                _tell(told, _messages.ENDED.pack(status, used.ru_maxrss * 1024, len(line)) + line + io)
                told.close()


def _refuse_late(told: socket.socket) -> None:
    """Raise CannotForkError where whoever asked has waited too long, and has started another process."""
    with contextlib.suppress(BlockingIOError):
        if not told.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise CannotForkError("nobody waits for it any more")


def _tell(told: socket.socket, message: bytes, files: Sequence[int] = ()) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    with contextlib.suppress(OSError):  # whoever asked is gone, or does not listen
        told.sendmsg([message], rights, socket.MSG_DONTWAIT)


def _close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def kill_group(pid: int) -> None:
    """SIGKILL a rank's whole group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def main() -> int:
    """Import, answer, serve; what returns is a rank that has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what ranks leave behind is reaped here
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    _forkable.show_arguments([sys.executable, *sys.argv[:2]])  # without the room, which ps would show
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    try:
        room = _forkable.EnvironRoom()
        template = Template(json.loads(control.recv(_messages.MOST_BYTES))["modules"])
        _forkable.refuse_threads()
    except BaseException as error:  # noqa: BLE001 it is told
        control.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    gc.collect()
    gc.freeze()  # the end of a rank would else touch, and so copy, each object
    me = os.getpid()
    control.send(json.dumps({"ready": me, "read": sorted(template.read)}).encode())
    request, files = ForkServer(template, room, control).serve()
    if request.get("engine"):
        _ranks.reset_signals(request["ignored"], request["blocked"])
        _engines.become_engine(request, files[0])
    else:
        _ranks.become_rank({**request, "template": me}, files, template.printed)
        _inputs.lock_inputs([os.fsencode(path) for path in request["locked"]])
    os.chdir(request["cwd"])
    variables = template.variables(request["env"])
    os.environ.clear()
    os.environ.update(variables)
    _ranks.settle_modules(template.folder, request["cwd"])
    if request.get("engine"):
        _engines.run_engine(request, files[0])
    atexit.register(_ranks.skip_destructors, template.libraries)
    if template.counts_leaks:
        atexit.register(gc.unfreeze)
    code: int = _ranks.run_program(request)
    return code


if __name__ == "__main__":
    _code = main()
    if _code < 0:
        sys.stdout.flush()
        signal.signal(-_code, signal.SIG_DFL)
        os.kill(os.getpid(), -_code)
    sys.exit(_code)
