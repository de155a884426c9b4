"""What ranks write while they run: ``metrics.jsonl``, one ``{"step", "total", "metrics": {name: number}}`` a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class MetricsEntry:
    """One line; what is no number is left out of its metrics, and the rest is as it was written."""

    step: Any
    total: Any
    metrics: dict[str, float]


def read_metrics(file: Path, most: int | None = None) -> Iterator[MetricsEntry]:
    """The lines of a file, or of its last so many bytes; one that is only half written is left for the next look."""
    for line in read_end(file, most).splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            values = entry.get("metrics")
            numbers = values.items() if isinstance(values, dict) else ()
            metrics = {str(name): value for name, value in numbers if isinstance(value, int | float)}
            yield MetricsEntry(entry.get("step"), entry.get("total"), metrics)


def read_end(file: Path, most: int | None = None) -> bytes:
    """The last so many bytes of a file, or all; nothing if it cannot be read."""
    try:
        with file.open("rb") as opened:
            if most is not None:
                opened.seek(max(0, opened.seek(0, 2) - most))
            return opened.read()
    except OSError:
        return b""
