"""Helpers of the tests that register: a checkout of their own, and what was sent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from allranks import catalogue, library
from tests import in_process
from tests.azure.stand_in.fixture import ROOT

FOLDERS = ("components", "environments", "pipelines")
SHARED = ("__init__.py", "distributed/__init__.py", "distributed/launch.py", "distributed/wire.py")
"""Of ``shared/`` a copy has these alone: nothing is run, and every file is uploaded once for each component."""


def copy_checkout(folder: Path) -> Path:
    """Copy the library into a folder."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    (folder / "shared/distributed").mkdir(parents=True)
    for name in SHARED:
        shutil.copy(ROOT / "shared" / name, folder / "shared" / name)
    return folder


@pytest.fixture(scope="session")
def small_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library with a small ``shared/``, which no test changes."""
    return copy_checkout(tmp_path_factory.mktemp("library"))


@contextmanager
def taken_for_library(folder: Path, version: str = library.VERSION) -> Iterator[Path]:
    """Within the block this process takes the folder for the library."""
    cached = (catalogue.component_files, catalogue.environment_files, catalogue.pipeline_files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "root", lambda: folder)
        patch.setattr(library, "VERSION", version)
        for function in cached:
            function.cache_clear()
        yield folder
    for function in cached:
        function.cache_clear()


def register(folder: Path, *arguments: str) -> dict[str, Any]:
    """Register in this process, and return the document that ``--json`` prints."""
    done = in_process.allranks("register", *arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def actions(document: dict[str, Any]) -> dict[str, str]:
    """What is done with each asset, by its name."""
    return {asset["name"]: asset["action"] for asset in document["assets"]}


def sent(log: list[dict[str, Any]]) -> list[str]:
    """The assets that a log says were published, as ``kind/name``, in order."""
    puts = [
        one["path"].split("/")
        for one in log
        if one["method"] == "PUT" and one["path"].split("/")[-2:-1] == ["versions"]
    ]
    return [f"{parts[-4]}/{parts[-3]}" for parts in puts if parts[-4] in ("environments", "components")]


def changes(log: list[dict[str, Any]]) -> list[str]:
    """Every request that was not only a question."""
    return [f"{one['method']} {one['path']}" for one in log if one["method"] not in ("GET", "HEAD")]


def properties(store: dict[str, Any], kind: str, name: str, version: str) -> dict[str, Any]:
    """What was published."""
    found: dict[str, Any] = store[kind][name][version]["properties"]
    return found
