"""The arithmetic of the global batch."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shared.distributed import Refusal, detect
from shared.settings.command_line import refusing_once
from shared.settings.training import BatchSettings

EXIT_STOPPED = 143
"""Exit code after SIGTERM: 128 + 15, as a shell would report it."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How one optimizer step's rows are split: over ranks, then over passes that a rank makes one after the other."""

    batch_size: int
    world_size: int
    accumulation_steps: int

    def __post_init__(self) -> None:
        parts = self.world_size * self.accumulation_steps
        if self.batch_size % parts:
            below, above = self.batch_size // parts * parts, (self.batch_size // parts + 1) * parts
            nearest = f"{below} or {above}" if below else f"{above}"
            raise Refusal(
                f"batch_size {self.batch_size} does not divide over {self.world_size} ranks x "
                f"{self.accumulation_steps} accumulation steps = {parts}; nearest: {nearest}"
            )

    @property
    def rows_per_rank(self) -> int:
        """Rows of one rank in one optimizer step."""
        return self.batch_size // self.world_size

    @property
    def rows_per_pass(self) -> int:
        """Rows of one forward and backward pass."""
        return self.rows_per_rank // self.accumulation_steps


def plan_batches(batch: BatchSettings, world_size: int | None = None) -> BatchPlan:
    """Split the global batch over `world_size` parts, or all ranks that were started, before anything else is done.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if the parts are not whole.
    """
    launch = detect()
    with refusing_once():
        try:
            return BatchPlan(batch.batch_size, world_size or launch.world_size, batch.accumulation_steps)
        except Refusal as refusal:
            nodes = int(os.environ.get("AZUREML_NODE_COUNT", launch.num_nodes))
            if nodes <= launch.num_nodes or launch.launcher != "torchrun":
                raise
            raise Refusal(
                f"{refusal}. Of {nodes} nodes {launch.num_nodes} are left: start the job again with all of them, and "
                "it continues from its checkpoint"
            ) from None
