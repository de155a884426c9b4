"""The library's environments, built on this machine: a virtual environment for each, in ``.allranks/environments``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allranks import catalogue
from allranks.errors import CannotRunHereError, UnknownNameError
from allranks.files import write_text
from allranks.local.folders import make_private
from allranks.local.guard import Guard

INSTALL = "install.py"  # an environment that pip alone cannot build has one; its Dockerfile runs it as well
OPTIONAL = "optional.txt"  # what only some uses of an environment need
STAMP = "built.txt"  # the sha256 of what it was built from, written last


def place(home: Path, name: str) -> Path:
    """Where an environment is built, below the folder ``.allranks``."""
    return home / "environments" / name


def interpreter(home: Path, name: str) -> Path | None:
    """The Python of an environment that is built, and from the present requirements; else None."""
    folder = place(home.absolute(), name)
    stamp = folder / STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != _digest(name):
        return None
    return folder / "bin" / "python"


def packages(python: Path) -> Path:
    """The folder of the packages beside an interpreter of a virtual environment."""
    return next((python.parent.parent / "lib").glob("python3*/site-packages"))


def build(home: Path, name: str) -> Path:
    """Build an environment anew and return its Python; minutes, most of which are downloads.

    Raises:
        UnknownNameError: there is no such environment.
        CannotRunHereError: a command failed; what it printed says why. Or somebody else is building the same one.
    """
    source, folder = source_of(name), place(home.absolute(), name)
    make_private(home.absolute())
    make_private(folder.parent)
    marker = f"ALLRANKS_BUILDING={folder}"
    with _alone(folder), _guarded(marker):
        shutil.rmtree(folder, ignore_errors=True)
        python = folder / "bin" / "python"
        _run([sys.executable, "-m", "venv", str(folder)], marker)
        _run([str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip"], marker)
        if (source / INSTALL).is_file():
            _run([str(python), str(source / INSTALL)], marker)
        else:
            lists = [
                f"--requirement={file}" for file in (source / "requirements.txt", source / OPTIONAL) if file.is_file()
            ]
            _run([str(python), "-m", "pip", "install", *lists], marker)
        write_text(folder / STAMP, _digest(name))
    return python


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock on an environment's folder; the kernel frees it when we are killed."""
    lock = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise CannotRunHereError(
            f"{folder} is being built already.", "Wait for the other `allranks env build`."
        ) from error
    finally:
        os.close(lock)


@contextmanager
def _guarded(marker: str) -> Iterator[None]:
    """Within the block a guard ends the commands that carry the marker when we are killed.

    They would otherwise go on installing into a folder that the next build removes.
    """
    guard = Guard(marker)
    try:
        yield
    finally:
        guard.close()


def source_of(name: str) -> Path:
    """The folder in the library that describes an environment.

    Raises:
        UnknownNameError: there is no such environment.
    """
    path = catalogue.environments().get(name.removeprefix("allranks-"))
    if path is None:
        raise UnknownNameError(
            f"{name!r} is no environment.", f"The environments are {', '.join(catalogue.ENVIRONMENTS)}."
        )
    return path.parent


def _digest(name: str) -> str:
    """The sha256 of all that decides what is installed."""
    total = hashlib.sha256(sys.version.encode())
    for file in ("requirements.txt", OPTIONAL, INSTALL):
        path = source_of(name) / file
        total.update(path.read_bytes() if path.is_file() else b"")
    return total.hexdigest()


def _run(command: list[str], marker: str) -> None:
    """Run a command with its output going where ours goes: a build takes long enough to want to see it."""
    name, _, value = marker.partition("=")
    # Standard output is for our own result.
    done = subprocess.run(command, stdout=sys.stderr, env={**os.environ, name: value}, check=False)
    if done.returncode != 0:
        raise CannotRunHereError(f"{' '.join(command)} failed with {done.returncode}.", "What it printed says why.")
