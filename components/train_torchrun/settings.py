"""The inputs of this component: those of train_ddp's script, and how many of its processes torchrun starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from components.train_ddp.train_ddp import Settings as ScriptSettings
from shared.settings.fields import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ScriptSettings):
    """component.yaml is written from these."""

    processes_per_node: Annotated[
        int,
        Input("Ranks that torchrun starts on each node; the number of its GPUs.", least=1, most=64, is_argument=False),
    ] = 1
