"""One browser for all tests of a worker, and a folder of runs that were really run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, chromium, find_chromium
from tests.browser.demo import make_runs
from tests.local.support import command, environ
from tests.waiting import TIMEOUT


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is found on PATH, and CHROMIUM names none")
    with chromium(program) as started:
        yield started


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages by what they show; `home` is the runs folder."""
    return make_runs(tmp_path_factory.mktemp("pages"))


@contextmanager
def serving(home: Path, *arguments: str) -> Iterator[str]:
    """Where `allranks runs serve` serves a folder."""
    started = subprocess.Popen(
        command("runs", "--runs-dir", home, "serve", *arguments, "--json"),
        env=environ(DISPLAY="", WAYLAND_DISPLAY=""),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield json.loads(started.stdout.readline())["address"]
        started.send_signal(signal.SIGINT)
        assert started.wait(TIMEOUT) == 0, "Ctrl+C is its usual end"
    finally:
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED) if started.returncode is None else None
