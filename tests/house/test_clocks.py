"""Tests read no clock: they wait for what happens, with `tests.waiting.wait_for`, and pytest-timeout bounds them."""

from __future__ import annotations

import re

from tests.helpers import ROOT

CLOCK = re.compile(
    r"\btime\.(sleep|time|time_ns)\b|\bmonotonic(_ns)?\b|\bperf_counter(_ns)?\b|\bprocess_time\b|\bfrom time import\b"
)
ALLOWED = {
    "tests/blob_mount.py": "emulates a mount whose listings and closes are late",
    "tests/local/late/sitecustomize.py": "lets the clock of a process jump",
    "tests/shared/distributed/test_liveness.py": "puts a clock in the place of the process's",
    "tests/waiting.py": "has the only poll",
}
"""Files that read a clock or sleep, each with the reason."""


def test_no_test_reads_a_clock() -> None:
    found = {
        file.relative_to(ROOT).as_posix() for file in (ROOT / "tests").rglob("*.py") if CLOCK.search(file.read_text())
    }
    assert sorted(found - ALLOWED.keys()) == [], "wait with tests.waiting.wait_for, or pass a clock to what measures"
    assert sorted(ALLOWED.keys() - found) == [], "these files no longer need their lines in ALLOWED"
