"""How much of a step's time went into steps that were kept, over all its attempts.

What each attempt did is read from rank 0's ``outputs/metrics.jsonl`` (``step``, and ``time`` where it is there) and
from the line with which our trainers continue from a checkpoint, when it has ended: the next one has a fresh working
folder. Steps that were not logged yet when an attempt ended are not known, so what is lost is at least what is said.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from allranks.local.folders import StepFolder
from allranks.wording import with_count

_CONTINUED = re.compile(rb"^continuing from .*: step (\d+), epoch \d+", re.MULTILINE)
_HEAD_BYTES = 1 << 18  # of a log, in which that line is looked for
_MOST_BYTES = 1 << 26  # of metrics.jsonl that are read
_MOST_POINTS = 500  # of an attempt that are kept


@dataclass(frozen=True, slots=True)
class AttemptSteps:
    """Which steps an attempt made.

    Attributes:
        first: the step that it continued from; 0 for a beginning.
        last: the last one that it logged.
        pace: seconds since the attempt began, and the step that was logged then, in their order.
    """

    first: int
    last: int
    pace: tuple[tuple[float, int], ...]

    def seconds_up_to(self, step: int) -> float:
        """When a step was done, between the ones that were logged, or before them at the speed of the first two."""
        steps = [done for _, done in self.pace]
        place = min(max(1, bisect_left(steps, step)), len(steps) - 1)
        if len(steps) == 1:
            return self.pace[0][0] if step >= steps[0] else 0.0
        (before, low), (after, high) = self.pace[place - 1], self.pace[place]
        return max(0.0, min(before + (after - before) * (step - low) / (high - low), self.pace[-1][0]))

    def seconds_between(self, first: int, last: int) -> float:
        """How long these steps took."""
        return max(0.0, self.seconds_up_to(last) - self.seconds_up_to(first)) if last > first else 0.0


@dataclass(frozen=True, slots=True)
class RestartSummary:
    """What the attempts of a step came to.

    Attributes:
        count: attempts but the first.
        causes: of the failed attempts that another one followed, as in ``failure_cause.py``.
        lost_steps: those that were made again; None where nothing was logged.
        goodput: seconds that produced kept steps, of the seconds of all attempts: 0 to 1; None while not known.
    """

    count: int = 0
    causes: tuple[str, ...] = ()
    lost_steps: int | None = None
    goodput: float | None = None

    def document(self) -> dict[str, Any]:
        """As JSON, a part of the step's."""
        return {
            "restarts": self.count,
            "restart_causes": list(self.causes),
            "lost_steps": self.lost_steps,
            "goodput": None if self.goodput is None else round(self.goodput, 4),
        }


def past_restarts(step: Mapping[str, Any]) -> RestartSummary:
    """What a step.json or run.json tells; nothing of one of an earlier version."""
    causes = tuple(step.get("restart_causes", ()))
    return RestartSummary(step.get("restarts", 0), causes, step.get("lost_steps"), step.get("goodput"))


def restart_words(summary: RestartSummary) -> str:
    """``restarted 2 times (out of memory, lost process), 37 steps made again, goodput 81 %``; empty without one."""
    if not summary.count:
        return ""
    counted = [cause if count == 1 else f"{cause} {count}x" for cause, count in Counter(summary.causes).items()]
    times = "once" if summary.count == 1 else f"{summary.count} times"
    words = [f"restarted {times}" + (f" ({', '.join(counted)})" if counted else "")]
    if summary.lost_steps is not None:
        words.append(f"{with_count(summary.lost_steps, 'step')} made again")
    if summary.goodput is not None:
        words.append(f"goodput {100 * summary.goodput:.0f} %")
    return ", ".join(words)


def read_attempt_steps(folder: StepFolder, started: float) -> AttemptSteps | None:
    """The steps of the attempt that has just ended, and ``started`` then (monotonic seconds); None of none logged."""
    began = time.time() - (time.monotonic() - started)
    logged: dict[int, float] = {}
    for step, moment in _logged_steps(folder.metrics()):
        logged[step] = max(logged.get(step, 0.0), moment - began)
    if not logged:
        return None
    steps = sorted(logged)
    moments = accumulate((logged[step] for step in steps), max)
    pace = list(zip(moments, steps, strict=True))
    gap = max((after - before for before, after in pairwise(steps)), default=steps[0])  # an epoch's end cuts one short
    continued = _continued_step([folder.log(0), folder.log(None)])
    first = max(0, steps[0] - gap) if continued is None else continued
    thinned = pace[:: max(1, len(pace) // _MOST_POINTS)]
    return AttemptSteps(first, steps[-1], tuple(thinned if thinned[-1] == pace[-1] else [*thinned, pace[-1]]))


def _logged_steps(file: Path) -> list[tuple[int, float]]:
    """The steps of a metrics.jsonl with their times; of other people's lines those that have both."""
    try:
        with file.open("rb") as opened:
            lines = opened.read(_MOST_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
            step, moment = entry["step"], entry["time"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if type(step) is int and type(moment) in (int, float) and 0 <= step < 2**63:
            found.append((step, float(moment)))
    return found


def _continued_step(logs: Iterable[Path]) -> int | None:
    for log in logs:
        with suppress(OSError), log.open("rb") as opened:
            found = _CONTINUED.findall(opened.read(_HEAD_BYTES))
            return int(found[-1]) if found else None
    return None


def summarise_attempts(attempts: Sequence[tuple[float, str, AttemptSteps | None]], count: int) -> RestartSummary:
    """The sum of the attempts that have ended: of each its seconds, its cause and its steps; ``count`` have begun."""
    causes = tuple(cause for _, cause, _ in attempts[: max(0, count - 1)] if cause)
    known = [steps for _, _, steps in attempts if steps is not None]
    if not known:
        return RestartSummary(max(0, count - 1), causes)
    ends = [min(one.last, following.first) for one, following in pairwise(known)] + [known[-1].last]
    lost = sum(max(0, one.last - end) for one, end in zip(known, ends, strict=True))
    kept = sum(one.seconds_between(one.first, end) for one, end in zip(known, ends, strict=True))
    whole = sum(seconds for seconds, _, _ in attempts)
    return RestartSummary(max(0, count - 1), causes, lost, min(1.0, kept / whole) if whole > 0 else None)
