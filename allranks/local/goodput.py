"""How much of a step's time went into steps that were kept, over all its attempts.

What each attempt did is read from rank 0's ``outputs/metrics.jsonl`` (``step``, and ``time`` where it is there) and
from the line with which our trainers continue from a checkpoint, when it has ended: the next one has a fresh working
folder. Steps that were not logged yet when an attempt ended are not known, so what is lost is at least what is said.

torchrun starts its ranks again within an attempt. Our trainers say so in their log, and which steps are made again; of
other people's scripts that is not known.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
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
_STARTED = re.compile(rb"^distributed: .* launched by torchrun\b", re.MULTILINE)
_AGAIN = re.compile(rb"^steps (\d{1,15}) to (\d{1,15}) are made again", re.MULTILINE)
_LOG_BYTES = 1 << 24  # of a log, in which these lines are looked for
_MOST_BYTES = 1 << 26  # of metrics.jsonl that are read
_MOST_POINTS = 500  # of an attempt that are kept


@dataclass(frozen=True, slots=True)
class AttemptSteps:
    """Which steps an attempt made.

    Attributes:
        first: the step that it continued from; 0 for a beginning.
        last: the last one that it logged.
        pace: seconds since the attempt began, and the step that was logged then, in their order; what a restart by
            torchrun has cost is left out of these seconds.
        restarts: how often torchrun has started the ranks again.
        lost: steps that were made again for that.
    """

    first: int
    last: int
    pace: tuple[tuple[float, int], ...]
    restarts: int = 0
    lost: int = 0

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
        launcher_restarts: how often torchrun has started the ranks of our trainers again, within the attempts.
        goodput: seconds that produced kept steps, of the seconds of all attempts: 0 to 1; None while not known.
    """

    count: int = 0
    causes: tuple[str, ...] = ()
    lost_steps: int | None = None
    goodput: float | None = None
    launcher_restarts: int = 0

    def document(self) -> dict[str, Any]:
        """As JSON, a part of the step's."""
        return {
            "restarts": self.count,
            "restart_causes": list(self.causes),
            "launcher_restarts": self.launcher_restarts,
            "lost_steps": self.lost_steps,
            "goodput": None if self.goodput is None else round(self.goodput, 4),
        }


def past_restarts(step: Mapping[str, Any]) -> RestartSummary:
    """What a step.json or run.json tells; nothing of one of an earlier version."""
    causes = tuple(step.get("restart_causes", ()))
    numbers = (step.get("lost_steps"), step.get("goodput"), step.get("launcher_restarts", 0))
    return RestartSummary(step.get("restarts", 0), causes, *numbers)


def restart_words(summary: RestartSummary) -> str:
    """``restarted 2 times (out of memory, lost process), 37 steps made again, goodput 81 %``; empty without one."""
    words = []
    if summary.count:
        counted = [cause if count == 1 else f"{cause} {count}x" for cause, count in Counter(summary.causes).items()]
        words.append(f"restarted {_times(summary.count)}" + (f" ({', '.join(counted)})" if counted else ""))
    if summary.launcher_restarts:
        words.append(f"ranks restarted {_times(summary.launcher_restarts)} by torchrun")
    if not words:
        return ""
    if summary.lost_steps is not None:
        words.append(f"{with_count(summary.lost_steps, 'step')} made again")
    if summary.goodput is not None:
        words.append(f"goodput {100 * summary.goodput:.0f} %")
    return ", ".join(words)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def read_attempt_steps(folder: StepFolder, began: float) -> AttemptSteps | None:
    """Return the steps of the attempt that began then (seconds since 1970); None where it logged none."""
    logged: dict[int, float] = {}
    for step, moment in _logged_steps(folder.metrics()):
        logged[step] = max(logged.get(step, 0.0), moment - began)
    if not logged:
        return None
    steps = sorted(logged)
    moments = accumulate((logged[step] for step in steps), max)
    gap = max((after - before for before, after in pairwise(steps)), default=steps[0])  # an epoch's end cuts one short
    starts = _read_starts([folder.log(0), folder.log(None)])
    pace = _without_pauses(list(zip(moments, steps, strict=True)), starts.continued[1:])
    first = max(0, steps[0] - gap) if starts.continued[0] is None else starts.continued[0]
    thinned = pace[:: max(1, len(pace) // _MOST_POINTS)]
    points = tuple(thinned if thinned[-1] == pace[-1] else [*thinned, pace[-1]])
    return AttemptSteps(first, steps[-1], points, starts.restarts, starts.lost)


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


@dataclass(frozen=True, slots=True)
class _Starts:
    """The starts of the ranks in one attempt: the step that each continued from, None for a beginning."""

    continued: tuple[int | None, ...] = (None,)
    restarts: int = 0
    lost: int = 0


def _read_starts(logs: Iterable[Path]) -> _Starts:
    for log in logs:
        with suppress(OSError), log.open("rb") as opened:
            text = opened.read(_LOG_BYTES)
            marks = [mark.start() for mark in _STARTED.finditer(text)][1:]
            bounds = [0, *marks, len(text)]
            found = [_CONTINUED.findall(text, begin, end) for begin, end in pairwise(bounds)]
            continued = tuple(int(steps[-1]) if steps else None for steps in found)
            again = ((int(first), int(last)) for first, last in _AGAIN.findall(text, bounds[1])) if marks else ()
            lost = sum(max(0, last - first + 1) for first, last in again)
            return _Starts(continued, len(marks), lost)
    return _Starts()


def _without_pauses(pace: list[tuple[float, int]], continued: Iterable[int | None]) -> list[tuple[float, int]]:
    """The pace without what passed until the ranks had come so far again as before they were started again."""
    from statistics import median  # it brings fractions and decimal along

    usual = median([after - before for (before, _), (after, _) in pairwise(pace)] or [0.0])
    for step in continued:
        place = bisect_right([done for _, done in pace], step or 0)
        if place < len(pace):
            before = pace[place - 1][0] if place else 0.0
            pause = max(0.0, pace[place][0] - before - usual)
            pace = [*pace[:place], *((moment - pause, done) for moment, done in pace[place:])]
    return pace


def summarise_attempts(attempts: Sequence[tuple[float, str, AttemptSteps | None]], count: int) -> RestartSummary:
    """The sum of the attempts that have ended: of each its seconds, its cause and its steps; ``count`` have begun."""
    causes = tuple(cause for _, cause, _ in attempts[: max(0, count - 1)] if cause)
    known = [steps for _, _, steps in attempts if steps is not None]
    if not known:
        return RestartSummary(max(0, count - 1), causes)
    inside = sum(one.restarts for one in known)
    ends = [min(one.last, following.first) for one, following in pairwise(known)] + [known[-1].last]
    lost = sum(one.lost + max(0, one.last - end) for one, end in zip(known, ends, strict=True))
    kept = sum(one.seconds_between(one.first, end) for one, end in zip(known, ends, strict=True))
    whole = sum(seconds for seconds, _, _ in attempts)
    return RestartSummary(max(0, count - 1), causes, lost, min(1.0, kept / whole) if whole > 0 else None, inside)
