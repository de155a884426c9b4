"""How a plan is run, and who watches."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.plan import RunPlan
from allranks.local.result import StepResult
from allranks.request import RunRequest


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a plan is run; request.json keeps the request and the definition, which is the pipeline as it was read.

    Steps that begin ``anew`` go on from nothing that another run has left unfinished.
    """

    home: RunsHome
    python: Path
    request: RunRequest
    definition: Mapping[str, Any] = field(default_factory=dict)
    anew: frozenset[str] = frozenset()

    @property
    def use_cache(self) -> bool:
        """Whether outputs of finished steps are taken; otherwise checkpoints of unfinished ones are forgotten too."""
        return self.request.cache or bool(self.request.since)

    def reuses(self, plan: RunPlan) -> bool:
        """Whether outputs of finished steps are taken: of ``force_rerun`` those of the run that is resumed alone."""
        return self.use_cache and (not plan.force_rerun or bool(self.request.since))

    def reuse_since(self, plan: RunPlan) -> str:
        """The first run whose outputs may be taken; empty for any."""
        return "" if self.request.cache and not plan.force_rerun else self.request.since


class RunObserver:
    """Sees a run while it happens; this one shows nothing."""

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """The run begins."""

    def changed(self, step: StepResult) -> None:
        """A step has another status."""

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Time has passed while something runs."""

    def stopping(self, seconds: float) -> None:
        """Ctrl-C, or another signal, has asked ranks to save and to end within so many seconds."""

    def noted(self, note: str) -> None:
        """Something that the user should know, such as a part of the run that has failed."""


def new_run_id() -> str:
    """An id that sorts by time and is unique among engines that start in the same second."""
    now = time.time()
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(now)) + f"{int(now % 1 * 1000):03d}-{secrets.token_hex(2)}"
