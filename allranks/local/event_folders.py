"""The event files for TensorBoard that a step writes, wherever it does: its curves by name."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from allranks.local.event_files import EventPoint, read_event_file
from allranks.local.folders import RunsHome, StepFolder

_PREFIX = "events.out.tfevents."
_PLACES = ("outputs", "logs", "runs", "lightning_logs")  # of the working folder; where PyTorch and Lightning write
_MOST_ENTRIES = 5_000  # of folders that are looked through; outputs may be a data set
_MOST_FILES = 100
_MOST_POINTS = 200_000  # of a step
_RESCAN_SECONDS = 2.0  # between two searches for new files


def event_places(home: RunsHome, folder: StepFolder, key: str) -> list[Path]:
    """The folders that TensorBoard's files of a step are looked for in; they may not exist.

    Args:
        home: the runs folder.
        folder: of the step, in the run that executed it.
        key: of the step, by which its outputs are known until it has succeeded; empty if it is not known.
    """
    unfinished = [home.work(key) / "outputs"] if key else []
    return [folder.outputs, *unfinished, *(folder.work(0) / place for place in _PLACES)]


class EventCurves:
    """The curves of the event files below some folders; what was read once is not read again."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = tuple(places)
        self._offsets: dict[Path, int] = {}
        self._points: dict[Path, dict[str, list[EventPoint]]] = {}  # by folder and tag
        self._curves: dict[str, list[EventPoint]] = {}
        self._count = 0
        self._due = 0.0

    def look(self) -> dict[str, list[EventPoint]]:
        """All values so far of each metric by step, NaN included.

        A tag that files of several folders have is named after its folder too: ``validation/epoch_loss``.
        """
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _RESCAN_SECONDS
            files = _event_files(self.places)
            if not self._offsets.keys() <= set(files):  # another attempt has begun, from an empty folder
                self._offsets, self._points, self._count = {}, {}, 0
            for file in files:
                self._offsets.setdefault(file, 0)
            for file in self._offsets:
                self._read(file)
            self._curves = self._named()
        return self._curves

    def has_files(self) -> bool:
        """Whether there are event files, with numbers or not."""
        return bool(_event_files(self.places))

    def _read(self, file: Path) -> None:
        if self._count >= _MOST_POINTS:
            return
        points, self._offsets[file] = read_event_file(file, self._offsets[file])
        for point in points[: _MOST_POINTS - self._count]:
            self._count += 1
            self._points.setdefault(file.parent, {}).setdefault(point.tag, []).append(point)

    def _named(self) -> dict[str, list[EventPoint]]:
        folders = list(self._points)
        common = os.path.commonpath(folders) if folders else ""
        times = Counter(tag for found in self._points.values() for tag in found)
        curves: dict[str, list[EventPoint]] = {}
        for folder, found in self._points.items():
            where = folder.relative_to(common).as_posix()
            for tag, points in found.items():
                name = f"{where}/{tag}" if times[tag] > 1 and where != "." else tag
                curves[name] = sorted(points, key=lambda point: point.step)
        return curves


def _event_files(places: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    entries = 0
    for path, files in _walk(places):
        entries += len(files) + 1
        found += [path / name for name in sorted(files) if name.startswith(_PREFIX)]
        if entries > _MOST_ENTRIES or len(found) >= _MOST_FILES:
            break
    return found[:_MOST_FILES]


def _walk(places: Sequence[Path]) -> Iterator[tuple[Path, list[str]]]:
    for place in places:
        for path, folders, files in os.walk(place):
            folders.sort()
            yield Path(path), files
