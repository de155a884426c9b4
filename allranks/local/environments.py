"""The library's environments, built on this machine: a virtual environment for each, in ``.allranks/environments``."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from allranks import catalogue
from allranks.errors import CannotRunHereError, UnknownNameError

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
        CannotRunHereError: a command failed; what it printed says why.
    """
    source, folder = source_of(name), place(home.absolute(), name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip"])
    if (source / INSTALL).is_file():
        _run([str(python), str(source / INSTALL)])
    else:
        lists = [source / "requirements.txt", source / OPTIONAL]
        _run([str(python), "-m", "pip", "install", *(f"--requirement={path}" for path in lists if path.is_file())])
    (folder / STAMP).write_text(_digest(name), encoding="utf-8")
    return python


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


def _run(command: list[str]) -> None:
    """Run a command with its output going where ours goes: a build takes long enough to want to see it."""
    # Standard output is for our own result.
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        raise CannotRunHereError(f"{' '.join(command)} failed with {done.returncode}.", "What it printed says why.")
