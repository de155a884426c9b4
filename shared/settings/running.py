"""What surrounds a training: reports, checkpoints, the reading of rows, and how long ranks wait for each other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from shared.settings.fields import input_port, output_port, settings_class


@settings_class
class ReportSettings:
    """How often is reported."""

    log_every: int = input_port(
        "Steps between two lines of metrics. At these steps the ranks also compare notes: a loss that is not finite is "
        "acted upon here.",
        default=10,
        least=1,
        unit="steps",
    )


@settings_class
class CheckpointSettings:
    """Where checkpoints are kept, how often, and which the training continues from."""

    checkpoint_every: int = input_port(
        "Steps between two checkpoints; 0 makes one at the end of each epoch.", default=0, least=0, unit="steps"
    )
    checkpoint_minutes: float = input_port(
        "Minutes after which another checkpoint is made, besides those of checkpoint_every, at the next line of "
        "metrics; it is written while the training goes on. 0 makes none.",
        default=10,
        least=0,
        unit="minutes",
    )
    keep_checkpoints: int = input_port("Newest checkpoints that are kept.", default=2, least=1)
    keep_every: int = input_port(
        "Keep for good the checkpoints of steps that are a multiple of this, too; 0 keeps the newest alone.",
        default=0,
        least=0,
        unit="steps",
    )
    verify_checkpoints: bool = input_port(
        "Read all bytes of a checkpoint before continuing from it. Without it each tensor is checked when it is read, "
        "and a damaged one found as well.",
        default=False,
    )
    resume_from: Path | None = input_port(
        "Folder of checkpoints of another run to continue from. A run that was interrupted continues from its own "
        'output "checkpoints" without this. With more epochs than that run had, the further ones are trained, at the '
        "learning rates of all of them together; where these do not depend on the epochs (schedule constant, "
        "warmup_fraction 0), the result is that of a run that had so many from the start.",
        default=None,
    )
    checkpoints: Path = output_port("The last two checkpoints; a restarted run continues from here.", mode="rw_mount")


@settings_class
class LoaderSettings:
    """How rows are read ahead."""

    loader_workers: int = input_port(
        "Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256 MB are held in "
        "memory and read by none.",
        default=1,
        least=0,
        most=64,
    )
    pin_memory: bool = input_port(
        "Copy batches to the GPU from page-locked memory, while it computes. Without a GPU this has no effect.",
        default=True,
    )
    prefetch: int = input_port(
        "Batches that the reading threads may be ahead.", default=4, least=1, most=1024, unit="batches"
    )


@settings_class
class TimeoutSettings:
    """How long ranks wait for each other, in minutes."""

    init_timeout: float = input_port(
        "Minutes in which all ranks have to have started.", default=10, least=0.05, most=1440, unit="minutes"
    )
    step_timeout: float = input_port(
        "Minutes after which a rank that waits for the others gives up, so that a hung rank ends the run.",
        default=10,
        least=0.05,
        most=43200,
        unit="minutes",
    )

    @property
    def start(self) -> timedelta:
        """For the start of all ranks."""
        return timedelta(minutes=self.init_timeout)

    @property
    def step(self) -> timedelta:
        """For each later wait."""
        return timedelta(minutes=self.step_timeout)
