"""Run the commands that build an environment: uv with pip's settings, a log, and one builder at a time."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from allranks.errors import CannotRunHereError
from allranks.local.file_locks import held_lock, try_lock
from allranks.local.folders import child
from allranks.local.guard import ProcessGuard

_ERROR_LINE = re.compile(r"error|cause:|fatal:|\w+(?:Error|Exception|NotFound):", re.IGNORECASE)
_UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_OFFLINE",
    "trusted-host": "UV_INSECURE_HOST",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip that select package sources, and the corresponding variables of uv."""
BUILD_MARKER = "ALLRANKS_BUILDING"
"""In the environment of the commands: a guard ends those that would go on after we were killed."""


def uv_command(*arguments: str | Path) -> list[str]:
    """Return a command line of the uv that is installed with this package."""
    from uv import find_uv_bin

    return [find_uv_bin(), *map(str, arguments)]


def pip_settings() -> dict[str, str]:
    """Return pip's configuration as variables of uv, which does not read it; empty without pip."""
    listing = [sys.executable, "-m", "pip", "config", "list"]
    text = subprocess.run(listing, capture_output=True, text=True, check=False).stdout
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # a later one wins, as in pip
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.+)$", text, re.MULTILINE):
            if name in _UV_VARIABLES:
                words = ast.literal_eval(value).split()
                found[_UV_VARIABLES[name]] = ("," if name == "find-links" else " ").join(words)
    return found


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
    """The variables of commands that build in a folder; if this process is killed within the block, a guard ends them.

    uv takes packages from where pip would, the best version of all indexes, as lists for pip expect it.
    """
    with closing(ProcessGuard(f"{BUILD_MARKER}={folder}")):
        kept = {key: text for key, text in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
        as_pip = {"UV_INDEX_STRATEGY": "unsafe-best-match", **pip_settings()}
        yield {**as_pip, **kept, "UV_NO_WRAP": "1", BUILD_MARKER: str(folder)}


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


def run_command(
    command: list[str], variables: Mapping[str, str], log: IO[str], what: str, folder: Path | None = None
) -> None:
    """Run a command, with what it prints going to the log.

    Args:
        command: the program and its arguments.
        variables: all environment variables of the command.
        log: open for writing.
        what: how a message calls the command.
        folder: where the command is started.

    Raises:
        CannotRunHereError: the command failed.
    """
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    start = log.tell()
    done = subprocess.call(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=dict(variables), cwd=folder
    )
    if done == 0:
        return
    with Path(log.name).open(encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = [line.strip() for line in file if line.strip()]
    last = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), (lines or [""])[-1])
    raise CannotRunHereError(f"{what} failed: {last.removeprefix('cause: ')}", f"All that was printed: {log.name}")
