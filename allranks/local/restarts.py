"""Whether a failed attempt is followed by another one where nobody has said how often, and how long after it.

Azure ML has no number of retries for a job: a command job has ``limits.timeout``, "after which the job will be
cancelled" (learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.entities.commandjoblimits), a pipeline
``continue_on_step_failure`` (learn.microsoft.com/azure/machine-learning/reference-yaml-job-pipeline), and only a
parallel job ``retry_settings``, which are of its mini batches
(learn.microsoft.com/azure/machine-learning/reference-yaml-job-parallel). So a time-out ends a step here too, and what
is started again by itself is what a node that was taken away would have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from allranks.local.checkpoints import newest_checkpoint
from allranks.local.failure_cause import FailureCause

MOST_RESTARTS = 100
"""Of one step that nobody has asked for; each but a few has to have brought it further."""
MOST_IDLE = 3
"""Attempts in a row that have written no newer checkpoint."""
_LONGEST_PAUSE = 30.0  # seconds; the pause doubles from one second up to this

_FROM_OUTSIDE = (FailureCause.PREEMPTED, FailureCause.LOST_PROCESS, FailureCause.LOST_NODE)
"""What says nothing about the step itself, and may come again before it has got any further."""
_OF_ITS_OWN = (FailureCause.OUT_OF_MEMORY, FailureCause.OUT_OF_DISK, FailureCause.HUNG)
"""What comes again at the same place, unless that place was passed."""


class RestartBudget:
    """How far the attempts of a step have brought it, by the newest checkpoint that outlives them."""

    def __init__(self) -> None:
        self._folders: Sequence[Path] = ()
        self._before: int | None = None
        self._newest: int | None = None
        self._has_progressed = False
        self._idle = 0

    def begin_attempt(self, folders: Sequence[Path]) -> None:
        """An attempt begins, of whose outputs these outlive it."""
        self._folders, self._before = folders, newest_checkpoint(folders)

    def end_attempt(self) -> None:
        """It has failed."""
        newest = newest_checkpoint(self._folders)
        progressed = newest is not None and (self._before is None or newest > self._before)
        self._newest, self._idle = newest, 0 if progressed else self._idle + 1
        self._has_progressed = self._has_progressed or progressed

    def allows(self, cause: str, attempts: int) -> bool:
        """Whether the step is started again by itself, so many attempts having been made."""
        if self._newest is None or not self._has_progressed or attempts > MOST_RESTARTS:
            return False
        if self._idle:
            return cause in _FROM_OUTSIDE and self._idle < MOST_IDLE
        return cause in (*_FROM_OUTSIDE, *_OF_ITS_OWN)

    @property
    def pause(self) -> float:
        """Seconds before the next attempt: they double with each that has brought nothing."""
        return min(2.0 ** max(0, self._idle - 1), _LONGEST_PAUSE)
