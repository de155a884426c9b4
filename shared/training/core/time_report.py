"""The time split of all ranks as it is reported: metrics, a few words for each epoch, and a table for metrics.json."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shared.distributed import World
from shared.training.core.slow_ranks import SlowRank, SlowRanks
from shared.training.core.time_split import TimeSplit


class TimeReport:
    """Adds up the splits of all ranks on rank 0, over an epoch and over the run; `groups` see `SlowRanks`."""

    def __init__(self, world: World, groups: Sequence[Sequence[int]] | None = None) -> None:
        self._per_node = world.local_world_size
        self._slow = SlowRanks(self._per_node, groups)
        self._run: list[TimeSplit] = []
        self._epoch: list[TimeSplit] = []
        self._steps = 0

    def add(self, splits: Sequence[TimeSplit], steps: int, step: int) -> tuple[dict[str, float], list[SlowRank]]:
        """Take in what the ranks, in their order, did in so many `steps` up to a `step`.

        Gives metrics by name, seconds for each optimizer step and shares from 0 to 1, and ranks that are newly slow.
        """
        self._run, self._epoch = _sums(self._run, splits), _sums(self._epoch, splits)
        self._steps += steps
        numbers: dict[str, float] = {}
        for name in ("data", "compute", "wait", "save"):
            seconds = [getattr(split, name) / max(1, steps) for split in splits]
            numbers[f"time/{name}_s"] = statistics.fmean(seconds)
            if len(seconds) > 1:
                numbers |= {f"time/{name}_s_min": min(seconds), f"time/{name}_s_max": max(seconds)}
        shares = sum(splits, TimeSplit()).shares()
        return numbers | {f"time/{name}_share": share for name, share in shares.items()}, self._slow.add(splits, step)

    def end_epoch(self) -> list[str]:
        """Say how the time of an epoch's steps was divided, as the mean of all ranks, and begin the next."""
        total, self._epoch = sum(self._epoch, TimeSplit()), []
        if total.total == 0:
            return []
        return ["time " + ", ".join(f"{name} {share:.0%}" for name, share in total.shares().items())]

    def document(self) -> dict[str, Any]:
        """Give the seconds of each rank over the steps of this start, and the ranks that were slow, as JSON."""
        ranks = [
            {"rank": rank, "node": rank // self._per_node}
            | {f"{name}_s": round(seconds, 6) for name, seconds in asdict(split).items()}
            | {f"{name}_share": round(share, 6) for name, share in split.shares().items()}
            for rank, split in enumerate(self._run)
        ]
        return {"time": {"steps": self._steps, "ranks": ranks, "slow_ranks": self._slow.documents()}}


def _sums(before: Sequence[TimeSplit], more: Sequence[TimeSplit]) -> list[TimeSplit]:
    return [one + other for one, other in zip(before or [TimeSplit()] * len(more), more, strict=True)]
