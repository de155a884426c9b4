"""Name the rank that blocks the others, from the heartbeats that rank 0's control plane receives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shared.distributed.wire import Message

MISSING_SECONDS = 8.0
"""After so many seconds without a heartbeat, a rank holds Python's lock, is stopped, or has lost its machine."""
_GAP_SECONDS = 3.0
_BEFORE_TIMEOUT_SECONDS = 5.0
"""A pause ends this long before other ranks' collectives time out with an error that names no rank."""
_COLLECTIVE_PLACE = re.compile(r"/(torch/distributed/(?!checkpoint/)|horovod/|deepspeed/comm/)")
_WAITING_PLACE = re.compile(r"/(torch/autograd/graph\.py|tensorflow/|shared/distributed/)")
"""Code in which a main thread either computes or waits for other ranks: backward passes, and all of TensorFlow."""


@dataclass(slots=True)
class Report:
    """The last heartbeat of a rank.

    Attributes:
        title: such as ``rank 3 (node 1)``.
        heard_at: when it arrived, in seconds.
        silent: seconds without progress when it was sent.
        steps: number of finished steps.
        in_step: whether the next step is due; False in an announced pause and before the first steps.
        limit: longest silence in a step, in seconds.
        place: innermost call of the main thread, such as ``/code/train.py:33 (loss)``.
        debugged: whether the main thread is in a debugger.
        waiting: whether the main thread waits at the control plane.
    """

    title: str
    heard_at: float
    silent: float
    steps: int
    in_step: bool
    limit: float
    place: str
    debugged: bool
    waiting: bool = False

    def silence(self, now: float) -> float:
        """Return the seconds without progress until now; time without heartbeats counts."""
        return self.silent + now - self.heard_at

    def is_missing(self, now: float) -> bool:
        """Return whether the heartbeat is missing."""
        return now - self.heard_at > MISSING_SECONDS

    @property
    def is_free(self) -> bool:
        """Whether the main thread is outside all code that waits for other ranks."""
        return not (self.waiting or _COLLECTIVE_PLACE.search(self.place) or _WAITING_PLACE.search(self.place))

    def is_late(self, now: float) -> bool:
        """Return whether a step, or a collective in a pause, has timed out."""
        if self.in_step:
            return self.silence(now) >= self.limit
        in_collective = self.steps > 0 and _COLLECTIVE_PLACE.search(self.place) is not None
        return in_collective and self.silence(now) >= pause_limit(self.limit)

    def is_excused(self, now: float) -> bool:
        """Return whether the rank is busy in an announced pause within its limit."""
        return self.steps > 0 and not self.in_step and self.is_free and self.silence(now) < pause_limit(self.limit)


class HangDiagnosis:
    """Finds the rank that blocks the others, from the last heartbeat of each."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, int], Report] = {}
        self._looked_at: float | None = None

    def record(self, member: tuple[str, int], title: str, beat: Message, now: float) -> None:
        """Store the last heartbeat of a member."""
        fields = {name: beat[name] for name in ("silent", "steps", "in_step", "limit", "place", "debugged")}
        self._reports[member] = Report(title, now, **fields)

    def find(self, waiting: Mapping[tuple[str, int], bool], now: float) -> str:
        """Return a sentence that names the blocking rank, or ''. Called at each heartbeat of rank 0.

        Candidates are the ranks without progress, narrowed in this order: heartbeat missing, fewest steps, not waiting
        at the control plane, not in a collective. The result is '' before a rank has timed out, while a rank is in an
        announced pause, and if all silent ranks wait for ranks that make progress.

        Args:
            waiting: the ranks that have not left the world, and whether each waits at the control plane.
            now: the clock of `record`, in seconds.
        """
        self._forgive_gap(now)
        reports = [self._reports[member] for member in sorted(waiting, key=_by_rank) if member in self._reports]
        for member, report in self._reports.items():
            report.waiting = waiting.get(member, False)
        if not any(one.is_late(now) for one in reports) or any(one.debugged or one.is_excused(now) for one in reports):
            return ""
        silent = [one for one in reports if one.silence(now) >= one.limit / 2]
        found = _narrow(silent, lambda one: one.is_missing(now))
        found = _narrow(found, lambda one: one.steps > 0)  # those that serve a coordinator count none
        fewest = min(one.steps for one in found)
        found = _narrow(found, lambda one: one.steps == fewest)
        found = _narrow(found, lambda one: not one.waiting)
        found = _narrow(found, lambda one: one.is_free)
        moving = any(one.steps and one not in silent for one in reports)
        return "" if moving and not found[0].is_free else _sentence(found, now)

    def _forgive_gap(self, now: float) -> None:
        """Do not count time in which rank 0 itself did not receive heartbeats."""
        gap = now - (now if self._looked_at is None else self._looked_at)
        self._looked_at = now
        if gap > _GAP_SECONDS:
            for report in self._reports.values():
                report.heard_at = min(now, report.heard_at + gap)


def pause_limit(limit: float) -> float:
    """Return the maximum seconds of an announced pause while another rank waits in a step with this limit."""
    return max(limit, 2 * limit - _BEFORE_TIMEOUT_SECONDS)


def silence_words(seconds: float, place: str) -> str:
    """Such as ``nothing has moved for 300 s, and it stands at /code/train.py:33 (loss)``."""
    return f"nothing has moved for {seconds:.0f} s{f', and it stands at {place}' if place else ''}"


def _sentence(reports: list[Report], now: float) -> str:
    first, *others = reports
    words = silence_words(first.silence(now), first.place)
    if first.is_missing(now):
        words = (
            f"nothing has moved for {first.silence(now):.0f} s, and its heartbeat has been missing for "
            f"{now - first.heard_at:.0f} s (native code holds Python's lock, or its process is stopped); "
            f"before that it stood at {first.place}"
        )
    more = f"; nor does {' or '.join(one.title for one in others)}" if others else ""
    return f"{first.title} makes no progress: {words}{more}."


def _narrow(reports: list[Report], is_suspect: Callable[[Report], bool]) -> list[Report]:
    """Keep the suspects, if there are any."""
    return [report for report in reports if is_suspect(report)] or reports


def _by_rank(member: tuple[str, int]) -> int:
    return member[1]
