"""What ranks write while they run: ``metrics.jsonl``, one ``{"step", "total", "metrics": {name: number}}`` a line."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""As protocol buffers, and so MLflow's own answers, write them in JSON."""


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
            metrics = {str(name): value for name, value in numbers if _is_number(value)}
            yield MetricsEntry(entry.get("step"), entry.get("total"), metrics)


def _is_number(value: object) -> bool:
    """Whether it is a float or fits into one, as JSON's whole numbers need not."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)


def metrics_document(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics as JSON, which has no NaN and no infinities: these are texts that ``float`` reads."""
    return {name: value if math.isfinite(value) else _NOT_FINITE[str(float(value))] for name, value in metrics.items()}


def read_metrics_document(document: Mapping[str, float | str] | None) -> dict[str, float]:
    """The metrics of a step in run.json, as they were."""
    return {name: float(value) if isinstance(value, str) else value for name, value in (document or {}).items()}


def read_end(file: Path, most: int | None = None) -> bytes:
    """The last so many bytes of a file, or all; nothing if it cannot be read."""
    try:
        with file.open("rb") as opened:
            if most is not None:
                opened.seek(max(0, opened.seek(0, 2) - most))
            return opened.read()
    except OSError:
        return b""
