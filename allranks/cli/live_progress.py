"""How far the steps of a run are that goes on, and how long the rest will take, from the steps that they have done."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from allranks.local.folders import StepFolder
from allranks.local.result import ProgressLook, StepProgress

_WINDOW = 30  # looks that the speed is measured over: a training that has become slower is soon believed
_LEAST_SECONDS = 1.0  # of work that a speed is believed of
_STALL_SECONDS, _STALL_TIMES = 30.0, 3.0
"""Without a step for so long, and for so many times the longest pause so far, a step says nothing of its end."""


@dataclass(slots=True)
class _Looks:
    """When how many steps were done."""

    attempt: int
    seen: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    pause: float = 0.0  # the longest between two steps

    def add(self, progress: StepProgress, now: float) -> None:
        """Note a step that is new."""
        if progress.step is None:
            return
        if self.seen and progress.step < self.seen[-1][1]:
            self.seen.clear()
        if self.seen and progress.step > self.seen[-1][1]:
            self.pause = max(self.pause, now - self.seen[-1][0])
        if not self.seen or progress.step > self.seen[-1][1]:
            self.seen.append((now, progress.step))

    def stalled(self, progress: StepProgress, now: float) -> float | None:
        """Seconds since the last step, where that is far longer than it ever was; None otherwise, and at the end."""
        if len(self.seen) < 2 or progress.step == progress.total:
            return None
        since = now - self.seen[-1][0]
        return since if since > max(_STALL_SECONDS, _STALL_TIMES * self.pause) else None

    def left(self, progress: StepProgress, now: float) -> float | None:
        """Seconds until the last step, at the speed of the last looks; None while that is not known, and at the end."""
        if not self.seen or not progress.total or self.stalled(progress, now) is not None:
            return None
        (began, first), (latest, last) = self.seen[0], self.seen[-1]
        if last in (first, progress.total) or latest - began < _LEAST_SECONDS:
            return None
        # A step that takes longer than those before it makes the rest longer too.
        pace = max(latest - began, (now - began) * (last - first) / (last - first + 1)) / (last - first)
        return max(0.0, (progress.total - last) * pace - (now - latest))


class LiveProgress:
    """Reads the progress of steps and trials again and again; that of a finished one once more, and then no longer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended: dict[StepFolder, StepProgress] = {}
        self._files: dict[StepFolder, ProgressLook] = {}
        self._looks: dict[str, _Looks] = {}

    def of(self, folder: StepFolder, *, is_finished: bool = False) -> StepProgress:
        """What was logged in the folder in which a step or trial is or was executed."""
        if folder in self._ended:
            return self._ended[folder]
        found = self._files.setdefault(folder, ProgressLook(folder.metrics())).look()
        if is_finished:
            self._ended[folder] = found
            del self._files[folder]
        return found

    def left(self, name: str, attempt: int, progress: StepProgress) -> float | None:
        """Seconds that a running step has to go; what an earlier attempt had done says nothing of this one's speed."""
        now = self._clock()
        return self._looked(name, attempt, progress, now).left(progress, now)

    def stalled(self, name: str, attempt: int, progress: StepProgress) -> float | None:
        """Seconds without progress of a running step, where that is far longer than it ever was; else None."""
        now = self._clock()
        return self._looked(name, attempt, progress, now).stalled(progress, now)

    def _looked(self, name: str, attempt: int, progress: StepProgress, now: float) -> _Looks:
        looks = self._looks.get(name)
        if looks is None or looks.attempt != attempt:
            looks = self._looks[name] = _Looks(attempt)
        looks.add(progress, now)
        return looks
