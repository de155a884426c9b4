"""What the making of every environment has in common: commands with a log, one builder at a time, what is here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from allranks.errors import CannotRunHereError
from allranks.local.file_locks import held_lock, try_lock
from allranks.local.folders import child
from allranks.local.guard import ProcessGuard

_ERROR_LINE = re.compile(r"error|\w+(?:Error|Exception|NotFound):", re.IGNORECASE)
BUILD_MARKER = "ALLRANKS_BUILDING"
"""In the environment of the commands: a guard ends those that would go on after we were killed."""


def find_uv() -> str | None:
    """The program uv, beside this interpreter or on PATH; None where there is none."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def has_gpu() -> bool:
    """Is there a GPU of NVIDIA's? What the user hides from one run (CUDA_VISIBLE_DEVICES) is there all the same."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def package_folder(python: Path) -> Path:
    """The folder of the packages beside an interpreter of a virtual environment."""
    return next((python.parent.parent / "lib").glob("python3*/site-packages"))


def lock_file(folder: Path) -> Path:
    """Return what a builder or remover of an environment has the lock on.

    Raises:
        StorageError: the environment, its log or the folder around both is a link that leads elsewhere.
    """
    child(folder.parents[1], folder.parent.name, folder.name)
    child(folder.parent, f"{folder.name}.log")
    return folder.with_name(f".{folder.name}.lock")


@contextmanager
def guarded_commands(folder: Path) -> Iterator[Mapping[str, str]]:
    """The variables of commands that build in a folder: who is killed within the block leaves none of them running."""
    with closing(ProcessGuard(f"{BUILD_MARKER}={folder}")):
        kept = {key: text for key, text in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
        yield {**kept, BUILD_MARKER: str(folder)}


@contextmanager
def sole_builder(folder: Path) -> Iterator[None]:
    """Hold the lock on an environment's folder; CannotRunHereError if somebody else has it."""
    lock = try_lock(lock_file(folder))
    if lock is None:
        raise CannotRunHereError(f"{folder} is being built already.", "Wait for the other `allranks env build`.")
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def awaited_builder(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock on an environment's folder; while somebody else has it, say so and wait."""
    lock = try_lock(lock_file(folder))
    if lock is None:
        tell("waiting for somebody else who builds it")
        with held_lock(lock_file(folder)):
            yield
        return
    try:
        yield
    finally:
        os.close(lock)


def run_command(command: list[str], variables: Mapping[str, str], log: IO[str], folder: Path | None = None) -> bool:
    """Run a command in ``folder``, with what it prints going to the log; says whether it succeeded."""
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    done = subprocess.call(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=dict(variables), cwd=folder
    )
    return done == 0


def run_commands(
    commands: Iterable[list[str]], variables: Mapping[str, str], log: IO[str], what: str, folder: Path | None = None
) -> None:
    """Run commands until one succeeds, with what they print going to the log.

    Args:
        commands: each is another way to do the same.
        variables: all environment variables of theirs.
        log: open for writing.
        what: how a message calls it.
        folder: where they are started.

    Raises:
        CannotRunHereError: none did.
    """
    if any(run_command(command, variables, log, folder) for command in commands):
        return
    text = Path(log.name).read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), (lines or [""])[-1])
    raise CannotRunHereError(f"{what} failed: {last}", f"All that was printed: {log.name}")
