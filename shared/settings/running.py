"""What surrounds a training: reports, checkpoints, the reading of rows, and how long ranks wait for each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from shared.settings.fields import Input, Output


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """How often is reported."""

    log_every: Annotated[
        int,
        Input(
            "Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is not "
            "finite or a request to stop is acted upon here.",
            least=1,
            unit="steps",
        ),
    ] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where checkpoints are kept, how often, and which the training continues from."""

    checkpoint_every: Annotated[
        int, Input("Steps between two checkpoints; 0 makes one at the end of each epoch.", least=0, unit="steps")
    ] = 0
    resume_from: Annotated[
        Path | None,
        Input(
            "Folder of checkpoints of another run to continue from. A run that was interrupted continues from its own "
            'output "checkpoints" without this. With more epochs than that run had, the further ones are trained, at '
            "the learning rates of all of them together; where these do not depend on the epochs (schedule constant, "
            "warmup_fraction 0), the result is that of a run that had so many from the start."
        ),
    ] = None
    checkpoints: Annotated[
        Path, Output("The last two checkpoints; a restarted run continues from here.", mode="rw_mount")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """How rows are read ahead."""

    loader_workers: Annotated[
        int,
        Input(
            "Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256 MB are held "
            "in memory and read by none.",
            least=0,
            most=64,
        ),
    ] = 1
    pin_memory: Annotated[
        bool,
        Input("Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no effect."),
    ] = True
    prefetch: Annotated[
        int, Input("Batches that the reading threads may be ahead.", least=1, most=1024, unit="batches")
    ] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """How long ranks wait for each other, in minutes."""

    init_timeout: Annotated[
        float, Input("Minutes in which all ranks have to have started.", least=0.05, most=1440, unit="minutes")
    ] = 10
    step_timeout: Annotated[
        float,
        Input(
            "Minutes after which a rank that waits for the others gives up, so that a hung rank ends the run.",
            least=0.05,
            most=43200,
            unit="minutes",
        ),
    ] = 10

    @property
    def start(self) -> timedelta:
        """For the start of all ranks."""
        return timedelta(minutes=self.init_timeout)

    @property
    def step(self) -> timedelta:
        """For each later wait."""
        return timedelta(minutes=self.step_timeout)
