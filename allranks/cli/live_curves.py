"""The curves of a run that goes on: the main metric of each step and trial, read again as it grows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from allranks.cli.sparklines import main_metric
from allranks.local.folders import RunsHome, StepFolder
from allranks.local.logged import FollowedFiles, read_executed_curves
from allranks.local.tracking.reading import TrackingReader

_NEXT_LOOK = 0.5  # seconds between two looks at one step
_SHARE = 50  # and at least so many times what a look takes


@dataclass(frozen=True, slots=True)
class ShownCurve:
    """The values of the main metric in their order; empty where nothing has two values."""

    metric: str = ""
    values: Sequence[float] = ()


@dataclass(slots=True)
class _Look:
    curve: ShownCurve
    due: float
    is_last: bool


class LiveCurves:
    """Looks at steps often enough for a person, and rarely enough to take no more than a fiftieth of the time."""

    def __init__(self, home: RunsHome) -> None:
        self._home = home
        self._reader = TrackingReader(home)
        self._followed = FollowedFiles()
        self._looks: dict[StepFolder, _Look] = {}

    def curve_of(self, folder: StepFolder, *, primary: str = "", is_finished: bool = False) -> ShownCurve:
        """The curve of a step or trial, from the folder in which it was executed; a finished one is read once more."""
        known, began = self._looks.get(folder), time.monotonic()
        if known is not None and (known.is_last or (began < known.due and not is_finished)):
            return known.curve
        # What has ended is read whole: its outputs have just been moved.
        curves = read_executed_curves(self._home, folder, self._reader, None if is_finished else self._followed)
        metric = main_metric(curves, primary)
        curve = ShownCurve(metric, [value for _, value in curves[metric]]) if metric else ShownCurve()
        ended = time.monotonic()
        due = ended + max(_NEXT_LOOK, _SHARE * (ended - began))
        self._looks[folder] = _Look(curve, due, is_finished)
        return curve

    def close(self) -> None:
        """Close the database."""
        self._reader.close()
