"""``resources.jsonl``: at each look at a step a line for the step, each rank, each launcher and each GPU.

A line tells what was used since the look before, ``over`` so many seconds, so that lines can be added up. Of a long
step neighbours are put together: then seconds of processors and bytes are sums, and of memory the higher one counts.

``of`` is what a line is about: ``step`` is all of it, ``rank``, ``launcher`` (what starts the ranks of a node) or
``gpu``; ``note`` says why nothing was measured. ``at`` is seconds since the step began. The last line of an attempt
has what is known of its end: nothing runs then, and ``peak_bytes`` is what the kernel says of the largest process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.files import write_text
from allranks.local.record_shapes import is_resource_sample

_MOST_LOOKS, _LEAST_LOOKS, _MOST_LINES = 240, 40, 8000
"""Of so many looks each two become one; fewer where many ranks would make more lines than that."""

_ADDED = ("over", "cpu_seconds", "read_bytes", "written_bytes", "disk_read_bytes", "disk_written_bytes", "gpu_seconds")
_HIGHEST = ("rss_bytes", "processes", "threads", "peak_bytes", "gpu_memory_bytes")

ResourceSample = dict[str, Any]
"""One line."""


class SampleFile:
    """The file of a step that runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looks = self._lines = 0

    def append(self, samples: Sequence[ResourceSample]) -> bool:
        """Write what one look has found; whether the file was full, and was made half as long."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_text(samples))
        self._looks += 1
        self._lines += len(samples)
        if self._looks < _MOST_LOOKS and (self._lines < _MOST_LINES or self._looks < _LEAST_LOOKS):
            return False
        merged = merge_neighbours(read_samples(self._path))
        write_text(self._path, _text(merged))
        self._looks, self._lines = (self._looks + 1) // 2, len(merged)
        return True


def _text(samples: Iterable[ResourceSample]) -> str:
    return "".join([json.dumps(sample) + "\n" for sample in samples])


def read_samples(path: Path) -> list[ResourceSample]:
    """All lines of a file; none if there is none, and without one that is only half written."""
    try:
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return [sample for sample in found if is_resource_sample(sample)]


def merge_neighbours(samples: Iterable[ResourceSample]) -> list[ResourceSample]:
    """Half as many lines, each of two that follow each other and tell of the same; in the order of time."""
    owned: dict[tuple[Any, ...], list[ResourceSample]] = {}
    for sample in samples:
        about = tuple(sample.get(key) for key in ("attempt", "of", "node", "rank", "gpu"))
        owned.setdefault(about, []).append(sample)
    merged = [_merged(own[at : at + 2]) for own in owned.values() for at in range(0, len(own), 2)]
    return sorted(merged, key=lambda sample: float(sample.get("at", 0)))


def _merged(pair: Sequence[ResourceSample]) -> ResourceSample:
    whole: Mapping[str, Any] = {key: value for sample in pair for key, value in sample.items()}
    added = {key: round(sum(sample.get(key, 0) for sample in pair), 3) for key in _ADDED if key in whole}
    highest = {key: max(sample.get(key, 0) for sample in pair) for key in _HIGHEST if key in whole}
    return {**whole, **added, **highest}
