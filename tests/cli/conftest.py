"""Calls the command line in this process, as the console script does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from allranks.cli.main import main


@dataclass(frozen=True)
class Called:
    """What a call printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, read as the one JSON document that it has to be."""
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Called]:
    def call(*arguments: str) -> Called:
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return call
