"""How far a preparation is: to `metrics.jsonl` each second, and a line each ten."""

from __future__ import annotations

import time
from contextlib import ExitStack

from shared.distributed import World
from shared.tracking import Tracker


class PreparationProgress(ExitStack):
    """Reports what this node has done of a total; what takes a moment is not reported at all.

    A context manager, which closes the report; `what` is counted, such as ``rows``.
    """

    def __init__(self, world: World, total: int, what: str = "rows") -> None:
        super().__init__()
        self._world, self._total, self._what, self._done = world, total, what, 0
        self._started = self._logged = self._noted = time.monotonic()
        self._tracker: Tracker | None = None

    def add(self, count: int) -> None:
        """Count what is done."""
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """Say how much is done altogether."""
        self._done, now = done, time.monotonic()
        if now - self._logged < 1:
            return
        if self._tracker is None:  # not at once: MLflow, to which it reports too, takes seconds to import
            self._tracker = self.enter_context(Tracker(self._world, self._total))
        speed = done / (now - self._started)
        self._tracker.log({f"{self._what}_per_second": speed}, step=done)
        self._logged = now
        if now - self._noted >= 10:
            self._noted = now
            self._world.note(f"written {done:,} of {self._total:,} {self._what}, {speed:,.0f} {self._what}/s")
