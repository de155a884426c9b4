"""How a training is doing: its loss, its speed, and whether it has to stop; what the frameworks have in common."""

from __future__ import annotations

import resource
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Final

from shared.distributed import World
from shared.distributed.startup import heed_no_more
from shared.training.core.stopping import StopAgreement
from shared.training.core.time_split import DataTimer, RankClock, TimeSplit

_SAVE_WISH: Final = 1
_SPLIT_WISH: Final = 2
"""What rank 0 wishes at a report, added up."""
_SPLIT_SECONDS: Final = 1.0
_RANKS_A_SECOND: Final = 16
"""The ranks' splits go to rank 0 no more often than this, so that 1,000 of them cost it no more than 16 do."""


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What happened since the reading before; `save`: rank 0 wishes a checkpoint.

    `loss` is the mean over all rows of all ranks, `loss_sum` the sum of the steps' mean losses. `splits` are those of
    all ranks, in their order, over the `split_steps` since they were there last; there are some on rank 0 now and then.
    """

    loss: float
    loss_sum: float
    steps: int
    seconds: float
    save: bool
    splits: tuple[TimeSplit, ...] = ()
    split_steps: int = 0


class LossMeter(ABC):
    """Counts steps, times them, and agrees with the other ranks on the loss when it is read.

    A framework's own meter adds up the loss on the device, so that no step waits for it. `data` is what times the
    batches. One that `counts_waits` adds to `_waited` how long it has waited for others, in seconds; see `RankClock`
    for what is taken otherwise. Rank 0 speaks for all where it is `alone`.
    """

    def __init__(
        self,
        world: World,
        data: DataTimer | None = None,
        *,
        counts_waits: bool,
        alone: bool = False,
    ) -> None:
        self._world, self._alone = world, alone or world.world_size == 1
        self._steps = self._split_steps = 0
        self._since = self._split_since = time.perf_counter()
        self.stop = StopAgreement(world, alone=alone)
        self._waited = 0.0
        counts = counts_waits or world.world_size == 1  # one rank has nobody to wait for
        self.clock = RankClock(data or DataTimer(), (lambda: self._waited) if counts else None)

    def end_step(self) -> None:
        """Count a step."""
        self._steps += 1

    def read(self, *, save: bool = False, split: bool = False) -> MeterReading:
        """Read and start again from 0; every rank calls this at the same step, and rank 0 says what it wishes.

        It wishes a checkpoint, if `save`, and the time `split`, which it also does by itself when that is due.
        """
        split |= time.perf_counter() - self._split_since >= max(
            _SPLIT_SECONDS, self._world.world_size / _RANKS_A_SECOND
        )
        total, wishes = self._agree(float(self._world.is_main * (_SAVE_WISH * save + _SPLIT_WISH * split)))
        now, wished = time.perf_counter(), round(wishes)
        self._split_steps += self._steps
        splits = self._collect_splits() if wished & _SPLIT_WISH else ()
        reading = MeterReading(
            total / max(1, self._steps),
            total,
            self._steps,
            now - self._since,
            bool(wished & _SAVE_WISH),
            splits,
            self._split_steps,
        )
        self._steps, self._since = 0, now
        if wished & _SPLIT_WISH:
            self._split_steps, self._split_since = 0, now
        return reading

    def restart(self) -> None:
        """Forget the time since the last reading, which was not spent on steps."""
        self._since = time.perf_counter()
        self.clock.restart()

    def _collect_splits(self) -> tuple[TimeSplit, ...]:
        """Bring the splits of all ranks to rank 0; none on the others."""
        mine = self.clock.split()
        if self._alone:
            return (mine,)
        found = self._world.collect([round(seconds, 6) for seconds in astuple(mine)], "time split")
        return tuple(TimeSplit(*seconds) for seconds in found or ())

    @abstractmethod
    def _agree(self, wish: float) -> tuple[float, float]:
        """Sum up the loss and a wish over the ranks, and start again from 0."""

    def hardware(self) -> dict[str, float]:
        """Memory of this process at its peak, in MB."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"memory_mb": peak / (2**20 if sys.platform == "darwin" else 2**10)}

    @contextmanager
    def stopping_on_sigterm(self) -> Iterator[None]:
        """Note SIGTERM instead of dying of it; the ranks agree after which step they stop.

        A handler that saved at once would deadlock: the other ranks may be anywhere. Once one was asked, SIGTERM says
        nothing new to any of them, and does nothing until this rank has left its world.
        """
        before = signal.signal(signal.SIGTERM, lambda *_: self.stop.ask())
        try:
            with self.stop:
                yield
        finally:
            if self.stop.is_asked():
                heed_no_more()
            else:
                signal.signal(signal.SIGTERM, before)
