"""What the steps of one run have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allranks.local.folders import RunFolder, RunsHome
from allranks.local.machine import FreePorts
from allranks.local.resources.memory_kills import KillCounter, count_machine_kills, count_own_kills
from allranks.local.temporary import TemporaryRoot
from allranks.local.tracking.steps import PlannedTracking
from allranks.request import RunRequest


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run, as it was asked for; ``umask`` is that of their processes, and not the engine's.

    ``own_kills`` and ``machine_kills`` count those for want of memory, among the engine's processes and among all.
    """

    home: RunsHome
    run: RunFolder
    experiment: str
    python: Path
    tracking: PlannedTracking
    umask: int = 0o022
    request: RunRequest = field(default_factory=lambda: RunRequest("", ""))
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    began: float = field(default_factory=time.monotonic)
    ports: FreePorts = field(default_factory=FreePorts)
    temporary: TemporaryRoot = field(default_factory=TemporaryRoot)
    own_kills: KillCounter = field(default_factory=lambda: KillCounter(count_own_kills))
    machine_kills: KillCounter = field(default_factory=lambda: KillCounter(count_machine_kills))
