"""A keeper for the tests of this folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.support import allranks
from tests.local.warm.support import Warmth


@pytest.fixture
def warmth() -> Iterator[Warmth]:
    """A keeper that nobody else knows; at the end it leaves no process behind."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:  # a short path, as a socket's has to be
        warm = Warmth(Path(name))
        done = allranks("warm", cwd=warm.place, XDG_RUNTIME_DIR=name)
        assert done.returncode == 0, done.stderr
        yield warm
        allranks("warm", "--stop", cwd=warm.place, XDG_RUNTIME_DIR=name)
