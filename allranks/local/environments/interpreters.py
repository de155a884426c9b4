"""The Python interpreters of this machine, by version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from allranks.errors import CannotRunHereError
from allranks.local.environments.building import find_uv

_PATIENCE = 20  # seconds that an interpreter has to say its version


def current_version() -> str:
    """The version of this interpreter, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def find_interpreter(version: str) -> Path | None:
    """A Python of a version such as 3.11, this one if it is such; None if there is none that starts."""
    return next((python for python in _candidates(version) if _says(python, version)), None)


def lacking_interpreter(version: str, name: str) -> CannotRunHereError:
    """The error of an environment for which there is no Python."""
    tool = "" if find_uv() else "Install uv (pip install uv), which fetches any Python. Or: "
    return CannotRunHereError(
        f"{name} asks for Python {version}, which is not on this machine and cannot be fetched.",
        f"{tool}Install Python {version}, or choose an interpreter for the steps: --python STEP=PATH.",
    )


def _candidates(version: str) -> Iterator[Path]:
    if version == current_version():
        yield Path(sys.executable)
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted((pyenv / "versions").glob(f"{version}*/bin/python"), reverse=True)
    uv = find_uv()
    if uv is not None:
        found = _output([uv, "python", "find", "--no-python-downloads", "--system", version])
        if found:
            yield Path(found)


def _says(python: Path, version: str) -> bool:
    code = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    return _output([str(python), "-c", code]) == version


def _output(command: list[str]) -> str:
    """What a command prints; empty if it fails: a shim of pyenv's does where its version is not chosen."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
