"""What surrounds a training: reports, checkpoints, the reading of rows, and how long ranks wait for each other."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from shared.settings.fields import Idle, input_port, output_port, settings_class

_NOT_STREAMED = Idle("read is {read}", lambda now: now.values["read"] != "streaming")


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
class SavingSettings:
    """In what form a model of text is saved."""

    model_weights: Literal["fp32", "bf16", "fp16"] = input_port(
        "Weights of the saved model. With 16 bits it is half as large, and rounded.", default="fp32"
    )
    max_shard_gb: float = input_port(
        "Largest file of the saved model, in units of 1,000,000,000 bytes; a larger model is divided into several.",
        default=5,
        least=0.0001,
        unit="GB",
        idle=(Idle("the model of images and tables is one file", lambda now: not now.is_text),),
    )

    @property
    def max_shard_bytes(self) -> float:
        """Largest file in bytes."""
        return self.max_shard_gb * 1e9


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
    keep_checkpoints: int = input_port(
        "Newest checkpoints that are kept; one fewer where there is no room for a further one.", default=2, least=1
    )
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
    """How rows are read, and how far ahead."""

    read: Literal["auto", "memory", "random", "streaming"] = input_port(
        "How rows are read. auto: from memory up to 256 MB, at random from the files beyond. memory: all of them are "
        "held, on the GPU if there is one; encoded pictures as such, on the node. random: from the files at random, "
        "which a mount of cloud storage is slow at. streaming: whole files one after another, mixed in a "
        "buffer, in an order of its own that does not depend on the number of GPUs either. Choose "
        "it for data on a mount that does not fit into memory.",
        default="auto",
    )
    shuffle_buffer: float = input_port(
        "For streaming: size of the files whose rows are mixed at a time. Each GPU needs half as much again of the "
        "node's memory, which those of a node share; files are as large as rows_per_shard of the preparation says. "
        "Data of half its size is shuffled as a whole. An interrupted run is continued only with the same.",
        default=512,
        least=0.001,
        most=1_000_000,
        unit="MB",
        idle=(_NOT_STREAMED,),
    )
    loader_workers: int = input_port(
        "Threads of each rank that read batches ahead; 0 reads between two steps. Datasets below 256 MB are held in "
        "memory and read by none, unless pictures are changed at random.",
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
        "Minutes after which a rank that waits for the others gives up. One in which nothing moves for half of that, "
        "10 seconds at least, no step, batch or file, is named with where it stands, and ends the run.",
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
