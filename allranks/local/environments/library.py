"""The library's environments, built on this machine: a virtual environment for each, in ``.allranks/environments``."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from allranks import catalogue, library
from allranks.errors import UnknownNameError
from allranks.files import write_text
from allranks.local.environments.building import guarded_commands, has_gpu, run_command, sole_builder, uv_command
from allranks.local.private_files import make_private_folder

LOCK_FILE = "lock.txt"  # exact versions of all that is installed; its Dockerfile and the tests take the same
_INSTALL = "install.py"  # an environment that pip alone cannot build has one; its Dockerfile runs it as well
_INSTALL_TORCH = "install_torch.py"  # beside the environments: it chooses torch's build for this machine
STAMP_FILE = "built.txt"  # the sha256 of what it was built from, written last


def environment_folder(home: Path, name: str) -> Path:
    """Where an environment is built, below the folder ``.allranks``."""
    return home / "environments" / name


def build_log(home: Path, name: str) -> Path:
    """Where what the commands of a build print goes."""
    return environment_folder(home.absolute(), name).with_name(f"{name}.log")


def built_interpreter(home: Path, name: str) -> Path | None:
    """The Python of an environment that is built from the present lock, and for this machine; else None.

    One with torch that was built where no GPU is, as on the login node of a cluster, is not for a machine with one.
    """
    folder = environment_folder(home.absolute(), name)
    stamp = folder / STAMP_FILE
    fitting = {_digest(name, gpu=True), _digest(name, gpu=has_gpu())}
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") not in fitting:
        return None
    return folder / "bin" / "python"


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
    with sole_builder(folder), guarded_commands(folder) as variables:
        (folder / STAMP_FILE).unlink(missing_ok=True)  # first: a half-removed environment does not count as built
        shutil.rmtree(folder, ignore_errors=True)
        with build_log(home, name).open("w", encoding="utf-8") as log:
            for phase, command in _phases(name, folder / "bin" / "python"):
                tell(phase)
                run_command(command, variables, log, f"{name}: {phase}")
        write_text(folder / STAMP_FILE, _digest(name, gpu=has_gpu()))
    return folder / "bin" / "python"


def _phases(name: str, python: Path) -> Iterator[tuple[str, list[str]]]:
    """What is done, in this order: a phase, and its command."""
    source = environment_source(name)
    lock = source / LOCK_FILE
    yield "virtual environment", uv_command("venv", "--seed", "--python", sys.executable, python.parent.parent)
    torch = _pinned_torch(lock)
    if torch:
        script = str(library.root() / "environments" / _INSTALL_TORCH)
        build = "" if has_gpu() else ", the build without CUDA"
        yield f"torch {torch}{build}", [str(python), script, str(lock), "--uv", *uv_command()]
    install = uv_command("pip", "install", "--python", python, "--requirement", lock)
    yield "the other packages" if torch else "packages", install
    if (source / _INSTALL).is_file():
        yield f"{_INSTALL}, which may compile", [str(python), str(source / _INSTALL)]


def _pinned_torch(lock: Path) -> str:
    """The version of torch in a lock; empty if it has none."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("torch==") for line in lines if line.startswith("torch==")), "")


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
