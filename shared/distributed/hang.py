"""Name the rank that blocks the others, from the heartbeats that rank 0's control plane receives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from shared.distributed.errors import print_line

MISSING_SECONDS = 8.0
"""After so many seconds without a heartbeat, a rank holds Python's lock, is stopped, or has lost its machine."""
WHY_MISSING = "native code holds Python's lock, or its process is stopped"
_LONGEST_GAP_SECONDS = 3.0
_BEFORE_TIMEOUT_SECONDS = 5.0
"""A pause ends this long before other ranks' collectives time out with an error that names no rank."""
_COLLECTIVE_PLACE = re.compile(r"/(torch/distributed/(?!checkpoint/)|horovod/|deepspeed/comm/)")
_WAITING_PLACE = re.compile(r"/(torch/autograd/graph\.py|tensorflow/|shared/distributed/)")
"""Code in which a main thread either computes or waits for other ranks: backward passes, TensorFlow, control plane."""


@dataclass(slots=True)
class Report:
    """The last heartbeat of a rank, and how long ago it arrived. Times are in seconds.

    Attributes:
        title: such as ``rank 3 (node 1)``.
        silent: time without progress.
        steps: number of finished steps.
        limit: time allowed without progress; 0 before the first steps, in an announced pause, and in a debugger.
        longest: the limit in a step.
        place: innermost call of the main thread, such as ``/code/train.py:33 (loss)``.
        missing: time without a further heartbeat.
    """

    title: str
    silent: float
    steps: int
    limit: float
    longest: float
    place: str
    missing: float = 0.0

    @property
    def is_missing(self) -> bool:
        """Whether the next heartbeat is missing."""
        return self.missing > MISSING_SECONDS

    @property
    def is_free(self) -> bool:
        """Whether the main thread is outside all code that waits for other ranks."""
        return not (_COLLECTIVE_PLACE.search(self.place) or _WAITING_PLACE.search(self.place))

    @property
    def is_late(self) -> bool:
        """Whether a step, or a collective in a pause, has timed out."""
        in_collective = self.steps > 0 and _COLLECTIVE_PLACE.search(self.place) is not None
        limit = self.limit or (pause_limit(self.longest) if in_collective else math.inf)
        return self.silent + self.missing >= limit

    @property
    def is_excused(self) -> bool:
        """Whether the rank is busy in an announced pause within its limit."""
        in_pause = self.steps > 0 and not self.limit and self.is_free
        return in_pause and self.silent + self.missing < pause_limit(self.longest)


class HangDiagnosis:
    """Finds the rank that blocks the others, from the last heartbeat of each."""

    def __init__(self) -> None:
        self._reports: dict[tuple[str, int], Report] = {}
        self._looked_at = 0.0

    def record(self, member: tuple[str, int], report: Report, now: float) -> None:
        """Store the last heartbeat of a member, which arrives now."""
        report.missing = max(-_LONGEST_GAP_SECONDS, self._looked_at - now)  # 0 when `find` adds the time up to its call
        self._reports[member] = report

    def find(self, members: Collection[tuple[str, int]], now: float) -> str:
        """Return a sentence that names the blocking rank, or ''. Called at each heartbeat of rank 0.

        Candidates are the ranks without progress, narrowed in this order: heartbeat missing, fewest steps, not waiting
        for other ranks. The result is '' before a rank has timed out, while a rank is in an announced pause, and if all
        silent ranks wait for ranks that make progress. A missing heartbeat is printed long before that.

        Args:
            members: the ranks that have not left the world.
            now: a monotonic clock, in seconds. Longer gaps, in which rank 0 itself received nothing, do not count.
        """
        passed, self._looked_at = min(_LONGEST_GAP_SECONDS, now - self._looked_at), now
        reports = [self._reports[one] for one in sorted(members, key=lambda one: one[1]) if one in self._reports]
        for report in reports:
            was_missing = report.is_missing
            report.missing += passed
            if report.steps and report.is_missing > was_missing:
                print_line(f"distributed: {report.title}: {_missing_words(report)}")
        if not any(one.is_late for one in reports) or any(one.is_excused for one in reports):
            return ""
        silent = [one for one in reports if one.silent + one.missing >= one.longest / 2]
        found = _narrow(silent, lambda one: one.is_missing)
        found = _narrow(found, lambda one: one.steps > 0)  # those that serve a coordinator count none
        fewest = min(one.steps for one in found)
        found = _narrow(found, lambda one: one.steps == fewest)
        found = _narrow(found, lambda one: one.is_free)
        moving = any(one.steps and one not in silent for one in reports)
        return "" if moving and not found[0].is_free else _sentence(found)


def pause_limit(longest: float) -> float:
    """Return the maximum seconds of an announced pause while another rank waits in a step with this limit."""
    return max(longest, 2 * longest - _BEFORE_TIMEOUT_SECONDS)


def silence_words(seconds: float, place: str) -> str:
    """Such as ``nothing has moved for 300 s, and it stands at /code/train.py:33 (loss)``."""
    return f"nothing has moved for {seconds:.0f} s{f', and it stands at {place}' if place else ''}"


def _missing_words(report: Report) -> str:
    why = f"its heartbeat has been missing for {report.missing:.0f} s ({WHY_MISSING})"
    return f"{why}; before that it stood at {report.place}"


def _sentence(reports: list[Report]) -> str:
    first, *others = reports
    words = silence_words(first.silent + first.missing, "" if first.is_missing else first.place)
    words += f", and {_missing_words(first)}" if first.is_missing else ""
    more = f"; nor does {' or '.join(one.title for one in others)}" if others else ""
    return f"{first.title} makes no progress: {words}{more}."


def _narrow(reports: list[Report], is_suspect: Callable[[Report], bool]) -> list[Report]:
    """Keep the suspects, if there are any."""
    return [report for report in reports if is_suspect(report)] or reports
