"""Faults at exact moments of a training: a rank kills, stops or hangs itself, raises, or can write no large file."""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import shlex
import shutil
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

Moment = Literal["step", "save", "files", "validation"]

ARMED = """\
import importlib.util
import sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "shared.training.core.run":
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            from faults import fault_at
            fault_at({kind!r}, {step}, {rank}, once={once!r})

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
"""
"""`sitecustomize` of every Python that a run starts."""


def fault_at(kind: str, step: int, rank: int, *, where: Moment = "step", once: str | Path = "") -> None:
    """Let this process suffer a fault at an exact moment of the training, if it is that worker.

    Args:
        kind: the name of a signal that the process sends itself; "error" raises; "hang" blocks, and "native hang" does
            so with Python's lock; with "small files" the system refuses all but small files from then on; "nothing" only
            writes `once`.
        step: the optimizer step, counted from the start of the training, from 1.
        rank: of the worker.
        where: "step" is before the step is counted; "save" is in the main thread, before its checkpoint; "files" is in
            the checkpoint's thread, when the first file of this rank is in storage; "validation" is in the first pass of
            the validation after the step.
        once: a file that is written before the fault; where it is there, nothing happens.
    """
    patch = {"step": _patch_step, "save": _patch_save, "files": _patch_files, "validation": _patch_validation}[where]
    patch(step, rank, partial(_fail_once, kind, rank, once))


def fault_code(kind: str, step: int, rank: int, *, where: Moment = "step", once: str | Path = "") -> str:
    """Return the statement that calls `fault_at` in a rank, to come before its script."""
    call = f"fault_at({kind!r}, {step}, {rank}, where={where!r}, once={str(once)!r})"
    return f"from tests.faults import fault_at; {call}"


def arm(folder: Path, kind: str, step: int, rank: int) -> dict[str, str]:
    """Let a worker of a run suffer a fault once; return variables for the engine, whose ranks inherit no PYTHONPATH."""
    folder.mkdir()
    shutil.copy(__file__, folder / "faults.py")
    once = str(folder / "happened")
    (folder / "sitecustomize.py").write_text(ARMED.format(kind=kind, step=step, rank=rank, once=once))
    (folder / "bash_env").write_text(f"export PYTHONPATH={shlex.quote(str(folder))}\n")
    return {"BASH_ENV": str(folder / "bash_env")}


def _fail_once(kind: str, rank: int, once: str | Path) -> None:
    if not _is_worker(rank) or (once and Path(once).exists()):
        return
    if once:
        Path(once).touch()
    if kind in signal.Signals.__members__:
        signal.raise_signal(signal.Signals[kind])
    else:
        {"error": _raise, "hang": _hang, "native hang": _hang_natively, "small files": _limit, "nothing": bool}[kind]()


def _is_worker(rank: int) -> bool:
    from shared.distributed.launch import detect

    launch = detect()
    return (launch.role, launch.rank) == ("worker", rank)


def _raise() -> NoReturn:
    raise RuntimeError("a fault of the test")


def _hang() -> None:
    threading.Event().wait()


def _hang_natively() -> None:
    while True:
        ctypes.PyDLL(None).pause()  # unlike CDLL, it keeps Python's lock


def _limit() -> None:
    _, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**15, highest))


def _patch_step(step: int, rank: int, fail: Callable[[], None]) -> None:
    del rank
    run = _run_class()
    end_step = run.end_step

    def end_step_with_fault(self: Any) -> bool:
        if self.at.step + 1 == step:
            fail()
        ended: bool = end_step(self)
        return ended

    run.end_step = end_step_with_fault


def _patch_save(step: int, rank: int, fail: Callable[[], None]) -> None:
    del rank
    engine = importlib.import_module("shared.checkpoint.saving").CheckpointEngine
    save = engine.save

    def save_with_fault(self: Any, number: int, *arguments: Any, **options: Any) -> None:
        if number == step:
            fail()
        save(self, number, *arguments, **options)

    engine.save = save_with_fault


def _patch_files(step: int, rank: int, fail: Callable[[], None]) -> None:
    fsync, begin, failed = os.fsync, f"/step-{step:08d}/rank-{rank:05d}-", threading.Event()

    def fsync_with_fault(descriptor: int) -> None:
        fsync(descriptor)
        if begin in str(Path(f"/proc/self/fd/{descriptor}").readlink()) and not failed.is_set():
            failed.set()
            fail()

    os.fsync = fsync_with_fault  # type: ignore[assignment]


def _patch_validation(step: int, rank: int, fail: Callable[[], None]) -> None:
    del rank
    run, agreement = _run_class(), importlib.import_module("shared.training.core.stopping").StopAgreement
    begin, end_step, is_asked, is_last = run.__enter__, run.end_step, agreement.is_asked, agreement.is_last
    trainings: list[Any] = []  # one that is in a validation, if not in a step

    def begin_with_fault(self: Any) -> Any:
        trainings.append(self)
        return begin(self)

    def end_step_outside(self: Any) -> bool:
        trainings.clear()
        ended: bool = end_step(self)
        trainings.append(self)
        return ended

    def fail_in_validation(self: Any, original: Callable[[Any], bool]) -> bool:
        if trainings and trainings[0].at.step == step:
            trainings.clear()
            fail()
            _wait_until_agreed(self)
        return original(self)

    run.__enter__, run.end_step = begin_with_fault, end_step_outside
    agreement.is_asked = lambda self: fail_in_validation(self, is_asked)
    agreement.is_last = lambda self: fail_in_validation(self, is_last)


def _wait_until_agreed(stop: Any) -> None:
    """Wait until the ranks have agreed on the last step, if this one was asked to stop: a short validation would end."""
    if stop._asked and stop._world is not None and not stop._alone:
        with stop._known:
            stop._known.wait_for(lambda: stop._last is not None or stop._error is not None)


def _run_class() -> Any:
    return importlib.import_module("shared.training.core.run").TrainingRun
