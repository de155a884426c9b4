"""How a plan is run, and who watches."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from allranks.local.execution import Execution
from allranks.local.folders import Home, RunFolder
from allranks.local.plan import Plan
from allranks.local.result import StepResult


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is run.

    Attributes:
        use_cache: take the outputs of finished steps; False also forgets checkpoints of unfinished ones.
        retries: further attempts for a step that fails.
        about: what run.json keeps besides the results: target, values, whatever is needed to start the run again.
    """

    home: Home
    python: Path
    use_cache: bool = True
    retries: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)


class Observer(Protocol):
    """Sees a run while it happens."""

    def started(self, run: RunFolder, plan: Plan) -> None:
        """The run begins."""

    def changed(self, step: StepResult) -> None:
        """A step has another status."""

    def tick(self, steps: Mapping[str, Execution]) -> None:
        """Time has passed while something runs."""


def new_run_id() -> str:
    """An id that sorts by time and is unique among engines that start in the same second."""
    now = time.time()
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(now)) + f"{int(now % 1 * 1000):03d}-{secrets.token_hex(2)}"
