"""All that a training in parts needs to go on as if it had never stopped, on the same ranks or on others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch.distributed.tensor import DTensor

from shared.checkpoint.pieces import ShardPart
from shared.checkpoint.reading import CheckpointReader
from shared.distributed import World
from shared.models import DecoderModel
from shared.training.core.position import CheckpointPlan
from shared.training.fsdp.pieces import TensorPiece, local_part, piece_of, pieces_of, sharded_parameters
from shared.training.torch.parts import PartsSaver


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
        for name, parameter in sharded_parameters(self.module):
            kept: dict[str, torch.Tensor] = self.optimizer.state[parameter]
            entries = {f"optimizer.{name}.{key}": value for key, value in kept.items()}
            for key, value in {f"model.{name}": parameter, **entries}.items():
                if isinstance(value, DTensor):
                    local, piece = local_part(value), piece_of(value)
                else:  # the same on all ranks, such as the number of steps
                    local, piece = value, TensorPiece((), (), (), owned=_leads(parameter))
                if piece.owned and not piece.empty:
                    yield ShardPart(key, local, piece.shape, piece.offset)

    def _weights(self) -> Iterator[torch.Tensor]:
        return (local for _, local, _ in pieces_of(self.module))

    def _read(self, saved: CheckpointReader) -> None:
        for name, local, piece in pieces_of(self.module):
            saved.read(f"model.{name}", local, piece.offset)
        for name, parameter in sharded_parameters(self.module):
            prefix = f"optimizer.{name}."
            for key in [key for key in saved.shapes if key.startswith(prefix)]:
                entry = _read_entry(saved, key, parameter)
                self.optimizer.state[parameter][key.removeprefix(prefix)] = entry


def _read_entry(saved: CheckpointReader, key: str, parameter: DTensor) -> torch.Tensor:
    """Read what the optimizer keeps of a parameter: something of the same shape, or one number."""
    if saved.shapes[key] == ():
        number = torch.zeros((), device=parameter.to_local().device)
        saved.read(key, number, ())
        return number
    entry = cast("DTensor", torch.zeros_like(parameter))
    saved.read(key, local_part(entry), piece_of(parameter).offset)
    return entry.detach()


def _leads(parameter: DTensor) -> bool:
    """Whether this rank is the first of those among which a parameter is divided."""
    return not any(parameter.device_mesh.get_coordinate() or ())
