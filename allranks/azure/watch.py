"""Follows a job and its steps until it is over; a step that fails is told with its own error and its own log."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allranks.azure.jobs import FINAL_STATUSES, StepState, job_status, list_logs, list_steps, read_log
from allranks.azure.retry import call_with_retry
from allranks.local.result import FAILED

LONGEST_POLL = 10.0
"""Seconds between two looks at a job: steps take minutes, and the service throttles who asks more often for long."""

_LAST_LINES = 60
"""So much of a failed step's log is shown."""

_TELLING = ("Traceback", "error:", "Error:", "ERROR")


class Watcher:
    """Who is told; this one shows nothing."""

    def changed(self, step: StepState) -> None:
        """A step has another state."""

    def failed(self, step: StepState, log: FailureLog | None) -> None:
        """A step has failed."""

    def looked(self, steps: Sequence[StepState]) -> None:
        """All steps, after each look."""

    def tell(self, note: str) -> None:
        """The service is busy, and will be asked again."""


@dataclass(frozen=True, slots=True)
class FailureLog:
    """The last lines of the log that tells most about a failure, and the names of the step's other logs."""

    name: str
    lines: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended: what the service says about the whole of it, its steps, and the logs of those that failed."""

    status: str
    error: str
    steps: tuple[StepState, ...]
    logs: Mapping[str, FailureLog]


def watch_job(client: Any, name: str, watcher: Watcher) -> JobOutcome:
    """Follow a job to its end, and tell the watcher of every change; raises the SDK's error when Azure stays away."""
    known: dict[str, str] = {}
    logs: dict[str, FailureLog] = {}
    looks = itertools.count()
    while True:
        status, error = call_with_retry(lambda: job_status(client, name), watcher.tell)
        steps = call_with_retry(lambda: list_steps(client, name), watcher.tell)
        for step in steps:
            if known.get(step.run) != step.status:
                known[step.run] = step.status
                watcher.changed(step)
                if step.status == FAILED and not step.is_pipeline:
                    log = call_with_retry(lambda run=step.run: _failure_log(client, run), watcher.tell)  # type: ignore[misc]
                    logs |= {} if log is None else {step.run: log}
                    watcher.failed(step, log)
        watcher.looked(steps)
        if status in FINAL_STATUSES:
            named = {step.name: logs[step.run] for step in steps if step.run in logs}
            return JobOutcome(status, error, tuple(steps), named)
        time.sleep(poll_pause(next(looks)))


def poll_pause(looks: int) -> float:
    """Seconds until the next look at a job that was looked at ``looks`` times before the last one.

    One at first, since what is refused is refused early, then twice as long.
    """
    return min(LONGEST_POLL, 2.0 ** min(looks, 8))


def _failure_log(client: Any, run: str) -> FailureLog | None:
    """The log with a traceback or an error, else the first rank's; None if the step wrote none."""
    texts = {name: read_log(client, address) for name, address in list_logs(client, run).items()}
    if not texts:
        return None
    telling = [name for name, text in texts.items() if any(mark in text for mark in _TELLING)]
    name = (telling or list(texts))[0]
    lines = tuple(texts[name].rstrip().splitlines()[-_LAST_LINES:])
    return FailureLog(name, lines, tuple(other for other in texts if other != name))
