"""The inputs of this component: those of train_ddp's script, and how many of its processes torchrun starts."""

from __future__ import annotations

from shared.settings.fields import input_port, settings_class
from shared.settings.trainer import RowsTrainerSettings


@settings_class
class Settings(RowsTrainerSettings):
    """component.yaml is written from these."""

    processes_per_node: int = input_port(
        "Ranks that torchrun starts on each node; the number of its GPUs.",
        default=1,
        least=1,
        most=64,
        is_argument=False,
    )
    max_restarts: int = input_port(
        "How often torchrun starts all ranks again after one of them has failed or was stopped. They continue from the "
        "newest checkpoint in the output checkpoints. 0 leaves that to whoever starts the job again.",
        default=3,
        least=0,
        most=1000,
        is_argument=False,
    )
    min_nodes: int | None = input_port(
        "Fewest nodes to go on with, in a restart, when others are lost; the first node is always needed, and "
        "batch_size has to divide over the ranks that are left. Leave it empty to need all of them. It has no effect "
        "where the service ends the job with the node, as Azure ML does with its own clusters.",
        default=None,
        least=1,
        is_argument=False,
    )
