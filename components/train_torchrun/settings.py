"""The inputs of this component: those of train_ddp's script, and how many of its processes torchrun starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shared.settings.fields import Input
from shared.settings.trainer import RowsTrainerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(RowsTrainerSettings):
    """component.yaml is written from these."""

    processes_per_node: Annotated[
        int,
        Input("Ranks that torchrun starts on each node; the number of its GPUs.", least=1, most=64, is_argument=False),
    ] = 1
