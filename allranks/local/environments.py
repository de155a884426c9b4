"""The library's environments, built on this machine: a virtual environment for each, in ``.allranks/environments``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

from allranks import catalogue, library
from allranks.errors import CannotRunHereError, UnknownNameError
from allranks.files import write_text
from allranks.local.file_locks import try_lock
from allranks.local.folders import make_private_folder
from allranks.local.guard import ProcessGuard

LOCK_FILE = "lock.txt"  # exact versions of all that is installed; its Dockerfile and the tests take the same
_INSTALL = "install.py"  # an environment that pip alone cannot build has one; its Dockerfile runs it as well
_INSTALL_TORCH = "install_torch.py"  # beside the environments: it chooses torch's build for this machine
_STAMP = "built.txt"  # the sha256 of what it was built from, written last
_MARKER = "ALLRANKS_BUILDING"
"""In the environment of the commands: a guard ends those that would go on after we were killed."""


def environment_folder(home: Path, name: str) -> Path:
    """Where an environment is built, below the folder ``.allranks``."""
    return home / "environments" / name


def built_interpreter(home: Path, name: str) -> Path | None:
    """The Python of an environment that is built from the present lock, and for this machine; else None.

    One with torch that was built where no GPU is, as on the login node of a cluster, is not for a machine with one.
    """
    folder = environment_folder(home.absolute(), name)
    stamp = folder / _STAMP
    fitting = {_digest(name, gpu=True), _digest(name, gpu=has_gpu())}
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") not in fitting:
        return None
    return folder / "bin" / "python"


def package_folder(python: Path) -> Path:
    """The folder of the packages beside an interpreter of a virtual environment."""
    return next((python.parent.parent / "lib").glob("python3*/site-packages"))


def build_environment(home: Path, name: str, tell: Callable[[str], None] = lambda _: None) -> Path:
    """Build an environment anew from its lock and return its Python; minutes, most of which are downloads.

    At the start of each phase ``tell`` is called with what it is.

    Raises:
        UnknownNameError: there is no such environment.
        CannotRunHereError: a command failed; the message names its last line and the log. Or somebody else is
            building the same one.
    """
    environment_source(name)
    folder = environment_folder(home.absolute(), name)
    make_private_folder(home.absolute())
    make_private_folder(folder.parent)
    with _alone(folder), closing(ProcessGuard(f"{_MARKER}={folder}")):
        (folder / _STAMP).unlink(missing_ok=True)  # first: a half-removed environment does not count as built
        shutil.rmtree(folder, ignore_errors=True)
        with folder.with_name(f"{name}.log").open("w", encoding="utf-8") as log:
            for phase, commands in _phases(name, folder / "bin" / "python"):
                tell(phase)
                _run(commands, {_MARKER: str(folder)}, log, f"{name}: {phase}")
        write_text(folder / _STAMP, _digest(name, gpu=has_gpu()))
    return folder / "bin" / "python"


def _phases(name: str, python: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """What is done, in this order: a phase, and commands of which the first that succeeds does it.

    uv is faster, but does not read pip's configuration: where it fails, pip may not.
    """
    source, uv = environment_source(name), find_uv()
    lock = source / LOCK_FILE
    yield "virtual environment", [[sys.executable, "-m", "venv", str(python.parent.parent)]]
    torch = _pinned_torch(lock)
    if torch:
        script = str(library.root() / "environments" / _INSTALL_TORCH)
        build = "" if has_gpu() else ", the build without CUDA"
        yield f"torch {torch}{build}", [[str(python), script, str(lock), *([f"--uv={uv}"] if uv else [])]]
    by_uv = [[uv, "pip", "install", "--python", str(python), "--requirement", str(lock)]] if uv else []
    by_pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--requirement", str(lock)]
    yield "the other packages" if torch else "packages", [*by_uv, by_pip]
    if (source / _INSTALL).is_file():
        yield f"{_INSTALL}, which may compile", [[str(python), str(source / _INSTALL)]]


def find_uv() -> str | None:
    """The program uv, beside this interpreter or on PATH; None where there is none."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def has_gpu() -> bool:
    """Is there a GPU of NVIDIA's? What the user hides from one run (CUDA_VISIBLE_DEVICES) is there all the same."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def _pinned_torch(lock: Path) -> str:
    """The version of torch in a lock; empty if it has none."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("torch==") for line in lines if line.startswith("torch==")), "")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock on an environment's folder."""
    lock = try_lock(folder.with_name(f".{folder.name}.lock"))
    if lock is None:
        raise CannotRunHereError(f"{folder} is being built already.", "Wait for the other `allranks env build`.")
    try:
        yield
    finally:
        os.close(lock)


def environment_source(name: str) -> Path:
    """The folder in the library that describes an environment.

    Raises:
        UnknownNameError: there is no such environment.
    """
    path = catalogue.environment_files().get(name.removeprefix("allranks-"))
    if path is None:
        raise UnknownNameError(
            f"{name!r} is no environment.", f"The environments are {', '.join(catalogue.ENVIRONMENTS)}."
        )
    return path.parent


def _digest(name: str, *, gpu: bool) -> str:
    """The sha256 of all that decides what is installed; where there is no torch, a GPU decides nothing."""
    lock = environment_source(name) / LOCK_FILE
    total = hashlib.sha256(sys.version.encode())
    if gpu and _pinned_torch(lock):
        total.update(b"gpu")
    for path in (lock, environment_source(name) / _INSTALL):
        total.update(path.read_bytes() if path.is_file() else b"")
    return total.hexdigest()


def _run(commands: list[list[str]], marker: Mapping[str, str], log: IO[str], what: str) -> None:
    """Run commands until one succeeds, with what they print going to the log.

    Raises:
        CannotRunHereError: none did.
    """
    kept = {key: text for key, text in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    for command in commands:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        environ = {**kept, **marker}
        if subprocess.call(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environ) == 0:
            return
    lines = [line.strip() for line in Path(log.name).read_text(encoding="utf-8", errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line.lower().startswith("error")), (lines or [""])[-1])
    raise CannotRunHereError(f"{what} failed: {last}", f"All that was printed: {log.name}")
