"""How a forked copy of a template becomes a rank, and runs its program; in a step's interpreter, without allranks."""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import runpy
import signal
import struct
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_CAPABILITIES_3 = struct.pack("=Ii", 0x20080522, 0)  # <linux/capability.h>: a header of this process
_KEPT_SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ)  # the last two Python ignores
_OLD_TORCH_SEED = 67280421310721  # with which each process began until torch drew one
_libc = ctypes.CDLL(None, use_errno=True)


def become_rank(request: Mapping[str, Any], files: Sequence[int], printed: bytes) -> None:
    """Turn the forked copy into the process of a request: all that is not a matter of variables and modules.

    The first file is its log, the others are namespaces that it enters.
    """
    log, *entered = files
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != request["template"]:
        os._exit(1)  # it was killed before the kernel was asked
    os.setsid()
    reset_signals(request["ignored"], request["blocked"])
    if printed:
        os.write(log, printed)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    for place in entered:
        if _libc.setns(place, 0) != 0:
            sys.exit(f"a namespace of its node could not be entered: {os.strerror(ctypes.get_errno())}")
    if entered and os.geteuid() != 0:  # one of users gives rights, which a new program would not have
        _libc.capset(_CAPABILITIES_3, bytes(24))
    for file in (nowhere, *files):
        os.close(file)
    for name, limits in request["limits"]:
        resource.setrlimit(name, tuple(limits))
    os.umask(request["umask"])


def reset_signals(ignored: Sequence[int], blocked: Sequence[int]) -> None:
    """Give each signal what it does in a new interpreter that a process starts which ignores and blocks these."""
    for number in signal.valid_signals():
        if number not in _KEPT_SIGNALS and signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def settle_modules(folder: str, work: str) -> None:
    """Set anew what imported modules have of the process that imported them; that one was in ``folder``."""
    tempfile.tempdir = None
    time.tzset()
    logging = sys.modules.get("logging")
    if logging is not None:
        started = time.time_ns() if sys.version_info >= (3, 13) else time.time()
        logging._startTime = started  # type: ignore[attr-defined]  # noqa: SLF001 from which it counts
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = work  # type: ignore[attr-defined]
    random = sys.modules.get("sympy.core.random")
    if random is not None:
        random.rng.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # Python's own generator is seeded anew at each fork
    torch = sys.modules.get("torch")
    if torch is not None and torch.initial_seed() != _OLD_TORCH_SEED:
        torch.default_generator.seed()
    config = sys.modules.get("torch._dynamo.config")
    if config is not None and config.debug_dir_root.startswith(folder):
        entry = config._config["debug_dir_root"]  # noqa: SLF001 to set it would count as a choice of the user's
        entry.default = str(Path(work) / Path(entry.default).relative_to(folder))
    telemetry = sys.modules.get("mlflow.telemetry.client")
    if telemetry is not None:  # a session of its own, which its child processes share with it through the variable
        os.environ.pop("_MLFLOW_TELEMETRY_SESSION_ID", None)
        telemetry.set_telemetry_client()
    importlib.invalidate_caches()


def loaded_libraries() -> frozenset[str]:
    """The shared libraries of this process, those of Python's own modules aside."""
    own = f"{sys.base_prefix}/lib/"
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = {path for line in lines if ".so" in (path := line.partition("/")[2])}
    return frozenset(f"/{path}" for path in paths if not f"/{path}".startswith(own))


def counts_leaks() -> bool:
    """Whether a module is there that tells at its end what of it was not freed: all that the collector leaves out.

    Those made with nanobind do, as Triton's that comes with torch 2.15. To collect all takes a second, as ever.
    """
    found = (value for module in list(sys.modules.values()) for value in list(getattr(module, "__dict__", {}).values()))
    return any(type(value).__module__ == "nanobind" for value in found)


def skip_destructors(known: frozenset[str]) -> None:
    """At the end, once Python is through, leave out the static destructors of what the template has loaded.

    Those of torch take 0.2 s in each rank, to free tables of a process that is gone. A rank that has loaded anything
    else ends as ever. Called at the end of Python; the last one registered with the C library is its first one.
    """
    if loaded_libraries() <= known and hasattr(_libc, "on_exit"):
        _libc.on_exit(_libc["_exit"], None)  # glibc gives it the exit code, see on_exit(3)
        _libc["__cxa_atexit"](_libc.fflush, None, None)


def run_program(request: Mapping[str, Any]) -> int:
    """Run the script or module as ``python`` does; its exit code, negative for a signal."""
    target: str = request["target"]
    sys.orig_argv[:] = request["argv"]
    sys.argv[:] = [target, *request["arguments"]]
    file = os.path.join(os.getcwd(), target)  # noqa: PTH109, PTH118 as Python joins them: ./train.py keeps its dot
    is_safe = getattr(sys.flags, "safe_path", False)
    if request["module"]:
        if not is_safe:
            sys.path.insert(0, str(Path.cwd()))
        sys.modules["__main__"] = _new_main(BuiltinImporter)
        return _end_of(lambda: runpy._run_module_as_main(target))  # type: ignore[attr-defined]  # noqa: SLF001 what python -m calls
    if not is_safe:
        sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        text = f"{sys.executable}: can't open file {file!r}: [Errno {error.errno}] {error.strerror}"
        print(text, file=sys.stderr)
        return 2
    of_template = vars(sys.modules["__main__"])  # a script too
    main = sys.modules["__main__"] = _new_main(SourceFileLoader("__main__", file))
    main.__dict__["__file__"] = file
    if "__cached__" in of_template:  # Python 3.15 is to leave it out
        main.__dict__["__cached__"] = None
    return _end_of(lambda: exec(compile(source, file, "exec", dont_inherit=True), main.__dict__))  # noqa: S102


def _new_main(loader: Any) -> types.ModuleType:
    """The module in which a program runs, as a new interpreter has it."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __loader__=loader, __annotations__={})
    return main


def _end_of(program: Callable[[], None]) -> int:
    """Run it; the traceback of an error is shown as if nothing of this file were below the program."""
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 it is shown
        inner = error.__traceback__.tb_next if error.__traceback__ else None  # the call above
        trace = inner.tb_next if inner else None  # without the lambda
        error.__traceback__ = trace
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        _show_error(error)
        return -int(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _show_error(error: BaseException) -> None:
    """Hand an error to the program's hook; one that fails itself is shown with it."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as wrong:  # noqa: BLE001 it is shown
        if wrong.__context__ is error:
            wrong.__context__ = None
        trace = wrong.__traceback__.tb_next if wrong.__traceback__ else None
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(wrong), wrong.with_traceback(trace), trace)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
