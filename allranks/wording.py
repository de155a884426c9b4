"""How numbers, durations, sizes, states and ranks are written: the same in the terminal, on pages and in notebooks.

What stands behind them is always a run's document, which ``--json`` prints; tests/browser/test_truth.py holds what is
shown against that. ``page.js`` has ``numberWords`` as its counterpart of ``number_words``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DIGITS = 6
"""Of a number in a table or under the pointer; what differs less is as good as equal."""
_FEWER_DIGITS = 4  # where several stand in one line
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""As protocol buffers, and so MLflow's own answers, write them in JSON."""


def not_finite_words(value: float) -> str:
    """``NaN``, ``Infinity`` and ``-Infinity``, as ``--json`` and the pages' scripts write them; empty for a number."""
    return "" if math.isfinite(value) else _NOT_FINITE[str(float(value))]


def number_words(value: float | None) -> str:
    """A number in a table, with six digits: ``0.972222``, ``1e-07``; empty where there is none."""
    return "" if value is None else not_finite_words(value) or f"{value:.{DIGITS}g}"


def short_number(value: float) -> str:
    """A number among others in one line, with four digits; what has more before its point is not cut: ``12346``."""
    if words := not_finite_words(value):
        return words
    is_long = abs(value) >= 10**_FEWER_DIGITS - 0.5
    return number_words(round(value)) if is_long else f"{value:.{_FEWER_DIGITS}g}"


def value_words(value: Any) -> str:
    """A value that a trial tries: numbers that are not whole with six digits, anything else as it is."""
    return number_words(value) if isinstance(value, float) else str(value)


def with_count(number: int, what: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def duration_words(duration: float | None) -> str:
    """A duration as people write it: ``0.4 s``, ``1 min 05 s``, ``2 h 03 min``; empty where it is not known."""
    if duration is None:
        return ""
    if round(duration, 1) < 60:
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def step_time(step: Mapping[str, Any]) -> str:
    """How long a step of a document took; empty for one that did not start here: waiting, skipped, reused."""
    return duration_words(step.get("seconds")) if step.get("started") is not None else ""


def short_duration(duration: float) -> str:
    """A duration in at most six letters: ``12s``, ``12m05s``, ``23h59m``, ``99d23h``."""
    seconds = max(0, round(duration))
    for unit, size, part, smaller in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit}{seconds % size // smaller:02d}{part}"
    return f"{seconds}s"


def run_seconds(state: Mapping[str, Any]) -> float | None:
    """How long the run of a document took; None for one that has not ended."""
    started, ended = state.get("started"), state.get("ended")
    return None if started is None or ended is None else round(ended - started, 3)


def size_words(size: float) -> str:
    """Bytes as people write them: ``12 B``, ``3.4 MB``."""
    if round(size) < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB"):
        size /= 1000
        if round(size, 1) < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} GB"


def status_words(status: str, *, is_reused: bool) -> str:
    """A step's status: ``failed``, ``succeeded (reused)``."""
    return f"{status} (reused)" if is_reused else status


def ranks_words(nodes: int, processes: int) -> str:
    """``2 x 4``: nodes, and processes on each; empty for what has no ranks."""
    return f"{nodes} x {processes}" if nodes else ""


def compared_words(value: Any) -> str:
    """A value in a comparison of runs: of data where it lies, its files, bytes and digest; ``-`` for none."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        files, size = with_count(value.get("files", 0), "file"), size_words(value.get("bytes", 0))
        return f"{value.get('path')} ({files}, {size}, {value.get('fingerprint')})"
    return number_words(value) if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
