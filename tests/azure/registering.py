"""Helpers of the tests that register: a checkout of their own, and the command as a shell starts it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.azure.stand_in.fixture import ROOT, StandIn
from tests.waiting import TIMEOUT

FOLDERS = ("allranks", "components", "environments", "pipelines", "shared/distributed")


def copy_checkout(folder: Path) -> Path:
    """A copy of the library that nobody else changes, complete enough for its version to be raised.

    Of ``shared/`` it has a part: nothing is run, and every file is uploaded once for each component.
    """
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in ("pyproject.toml", "shared/__init__.py"):
        shutil.copy(ROOT / name, folder / name)
    return folder


@dataclass(frozen=True)
class Shell:
    """Starts ``allranks`` in a checkout, with variables that lead to the stand-in and nothing else of Azure's."""

    stand_in: StandIn
    checkout: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "allranks", *arguments]

    @property
    def settings(self) -> dict[str, Any]:
        environ = self.stand_in.environ(PYTHONPATH=str(self.checkout), PYTHONDONTWRITEBYTECODE="1")
        return {"cwd": self.checkout, "env": environ, "stdin": subprocess.DEVNULL, "text": True}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), **self.settings, capture_output=True, timeout=TIMEOUT, check=False
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        """The document that ``--json`` prints, on standard output alone."""
        found: dict[str, Any] = json.loads(self(*arguments, "--json").stdout)
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
