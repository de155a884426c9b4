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
