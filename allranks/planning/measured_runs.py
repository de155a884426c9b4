"""What a run has measured: how long a rank computes for a row, how many rows there were, what its weights take."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.errors import UsageError
from allranks.local.folders import RunFolder
from allranks.local.record_shapes import read_json_file

_MOST_BYTES = 2**26  # of metrics.json, and of a header of safetensors


@dataclass(frozen=True, slots=True)
class MeasuredTraining:
    """What one training step of a run has measured.

    Attributes:
        step: its name.
        run_id: of the run.
        sample_seconds: that a rank computes for one row: the median over its ranks.
        samples: that it has trained on in all.
        weights: numbers in the model that it has written; None where it has written none that can be read.
        save_seconds: that it stood still for a checkpoint, at the median; None where it made none.
    """

    step: str
    run_id: str
    sample_seconds: float
    samples: float
    weights: int | None
    save_seconds: float | None


def measured_training(run: RunFolder, wanted: str = "") -> MeasuredTraining:
    """The training step of a run that has measured most, or the one that is wanted.

    Raises:
        UsageError: no step of the run, or not the one that is wanted, has measured what a rank computes.
    """
    state = read_json_file(run.state)
    names = [wanted] if wanted else list(state["steps"] if isinstance(state, dict) else ())
    found = [one for name in names if (one := _measured(run, name)) is not None]
    if not found:
        which = f"step {wanted!r} of run {run.id}" if wanted else f"no step of run {run.id}"
        said = f"{which} has {'not ' if wanted else ''}measured what a rank computes"
        raise UsageError(f"{said}: that stands in the metrics.json of a trainer of ours.", "Give --sample-seconds.")
    return max(found, key=lambda one: one.samples * one.sample_seconds)


def _measured(run: RunFolder, name: str) -> MeasuredTraining | None:
    folder = run.step(name)
    record = read_json_file(folder.state)
    if not isinstance(record, dict):
        return None
    outputs = {port: Path(place) for port, place in (record.get("outputs") or {}).items()}
    document = _numbers(outputs.get("metrics"))
    batch = _count((record.get("inputs") or {}).get("batch_size"))
    try:
        ranks = document["time"]["ranks"]
        steps = float(document["time"]["steps"])
        computed = statistics.median(float(rank["compute_s"]) for rank in ranks)
        samples = float(document["steps"]) * (batch or 0)
    except (KeyError, TypeError, ValueError, statistics.StatisticsError):
        return None
    if not batch or steps <= 0 or computed <= 0:
        return None
    stall = document.get("checkpoint_stall_ms")
    save = float(stall) / 1000 if isinstance(stall, int | float) and stall > 0 else None
    seconds = computed / steps / (batch / len(ranks))
    return MeasuredTraining(name, run.id, seconds, samples, _weights(outputs.get("model")), save)


def _numbers(folder: Path | None) -> Mapping[str, Any]:
    file = folder / "metrics.json" if folder is not None else None
    try:
        if file is None or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return {}
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, str | int) and str(value).isdecimal() and int(value) < 2**40 else None


def _weights(folder: Path | None) -> int | None:
    """How many numbers all safetensors below a folder hold, by their headers."""
    if folder is None or not folder.is_dir():
        return None
    return sum(filter(None, map(_numbers_in_header, sorted(folder.rglob("*.safetensors"))))) or None


def _numbers_in_header(file: Path) -> int:
    """The numbers of floating point in a file; 0 for one that is damaged."""
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size)) if size <= _MOST_BYTES else {}
        tensors = [one for name, one in header.items() if name != "__metadata__"]
        return sum(_product(one["shape"]) for one in tensors if one["dtype"].startswith(("F", "BF")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return 0


def _product(shape: list[int]) -> int:
    total = 1
    for side in shape:
        total *= side
    return total
