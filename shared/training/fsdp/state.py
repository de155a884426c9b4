"""All that a training in parts needs to go on as if it had never stopped, on the same ranks or on others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import World
from shared.models import DecoderModel
from shared.training.core.position import CheckpointPlan
from shared.training.fsdp.pieces import local_piece, pieces_of, sharded_parameters
from shared.training.torch.state import PartsSaver

NamedTensors = Iterable[tuple[str, torch.Tensor]]
OptimizerStates = Mapping[torch.Tensor, Mapping[str, Any]]
"""What an optimizer keeps of each parameter."""


class TrainingSaver(PartsSaver):
    """Saves and restores one training of a model that `fully_shard` has divided, with the optimizer's state."""

    division = "FSDP2"

    def __init__(
        self, plan: CheckpointPlan, world: World, module: DecoderModel, optimizer: torch.optim.Optimizer
    ) -> None:
        super().__init__(plan, world)
        self.module, self.optimizer = module, optimizer

    def _parts(self) -> Iterator[ShardPart]:
        """What this rank answers for, of the parameters and of what the optimizer keeps of each."""
        return checkpoint_parts(sharded_parameters(self.module), self.optimizer.state, is_main=self.world.is_main)

    def _weights(self) -> Iterator[torch.Tensor]:
        return (local for _, local, _ in pieces_of(self.module))

    def _read(self, saved: CheckpointReader) -> None:
        self.optimizer.state.update(read_parts(saved, sharded_parameters(self.module)))


def checkpoint_parts(
    tensors: NamedTensors, states: OptimizerStates, *, is_main: bool, prefix: str = "optimizer."
) -> Iterator[ShardPart]:
    """Give what this rank answers for, of a model's tensors and of what the optimizer keeps of each.

    What all ranks have whole is the main one's, and what they have whole of a divided parameter, such as the number of
    its steps, that of the first of those among which it is divided.
    """
    for name, tensor in tensors:
        entries = {f"{prefix}{name}.{key}": value for key, value in states.get(tensor, {}).items()}
        leads = not any(tensor.device_mesh.get_coordinate() or ()) if isinstance(tensor, DTensor) else is_main
        for key, value in {f"model.{name}": tensor, **entries}.items():
            local, piece = local_piece(value, leads=leads)
            if piece.owned and not piece.empty:
                yield ShardPart(key, local, piece.shape, piece.offset)


def read_parts(
    saved: CheckpointReader, tensors: NamedTensors, prefix: str = "optimizer."
) -> dict[torch.Tensor, dict[str, torch.Tensor]]:
    """Fill this rank's parts of a model's tensors, and give its parts of what the optimizer is to keep of each."""
    states: dict[torch.Tensor, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors:
        local, piece = local_piece(tensor)
        saved.read(f"model.{name}", local, piece.offset)
        start = f"{prefix}{name}."
        found = {key.removeprefix(start): key for key in saved.shapes if key.startswith(start)}
        if found:
            states[tensor] = {kind: _read_entry(saved, key, tensor) for kind, key in found.items()}
    return states


def _read_entry(saved: CheckpointReader, key: str, parameter: torch.Tensor) -> torch.Tensor:
    """Read what the optimizer keeps of a parameter: something of the same shape, or one number."""
    alike = saved.shapes[key] == tuple(parameter.shape)
    device = local_piece(parameter)[0].device
    entry = torch.zeros_like(parameter) if alike else torch.zeros(saved.shapes[key], device=device)
    local, piece = local_piece(entry)
    saved.read(key, local, piece.offset)
    return entry.detach()
