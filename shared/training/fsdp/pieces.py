"""Which part of a parameter lies on this rank, as offset and size in the whole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """A block of a tensor of a shape, by offset and size for each axis; a size of 0: there is nothing of it here.

    It is `owned` if this rank answers for it, and not a rank before this one that has the same block.
    """

    shape: tuple[int, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]
    owned: bool = True

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the block is in the whole."""
        return tuple(slice(start, start + length) for start, length in zip(self.offset, self.size, strict=True))

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it."""
        return 0 in self.size


def piece_of(parameter: DTensor) -> TensorPiece:
    """Compute where the local part of a sharded parameter lies.

    A layer is divided by tensor parallelism first, and each part of it over the data-parallel ranks then, as
    `torch.chunk` divides: so the mesh's dimensions count from the last to the first.
    """
    mesh, owned = parameter.device_mesh, True
    offset, size = [0] * parameter.ndim, list(parameter.shape)
    for number in reversed(range(mesh.ndim)):
        index, axis = mesh.get_local_rank(number), getattr(parameter.placements[number], "dim", None)
        if axis is None:
            owned = owned and index == 0
            continue
        chunk = math.ceil(size[axis] / mesh.size(number))
        start = min(index * chunk, size[axis])
        offset[axis], size[axis] = offset[axis] + start, min(chunk, size[axis] - start)
    assert tuple(size) == tuple(parameter.to_local().shape), (size, parameter.placements)  # noqa: S101
    return TensorPiece(tuple(parameter.shape), tuple(offset), tuple(size), owned)


def local_piece(tensor: torch.Tensor, *, leads: bool = True) -> tuple[torch.Tensor, TensorPiece]:
    """Give what this rank has of a tensor, outside autograd, and where it lies.

    For one that is not divided, so that each rank has all of it, the rank that `leads` answers.
    """
    if isinstance(tensor, DTensor):
        return local_part(tensor), piece_of(tensor)
    shape = tuple(tensor.shape)
    return tensor.detach(), TensorPiece(shape, (0,) * len(shape), shape, leads)


def copies_of(parameter: DTensor) -> int:
    """How many ranks hold the same part."""
    sizes = zip(parameter.placements, parameter.device_mesh.shape, strict=True)
    return math.prod(size for placement, size in sizes if placement.is_replicate())


def pieces_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, TensorPiece]]:
    """Name, local part and place of each parameter of a module that `fully_shard` has divided."""
    return ((name, local_part(parameter), piece_of(parameter)) for name, parameter in sharded_parameters(module))


def sharded_parameters(module: nn.Module) -> Iterator[tuple[str, DTensor]]:
    """Parameters of a module that `fully_shard` has divided, by name."""
    return ((name, cast("DTensor", parameter)) for name, parameter in module.named_parameters())


def local_part(tensor: DTensor) -> torch.Tensor:
    """What this rank has of a tensor, in the same memory, outside autograd."""
    return cast("DTensor", tensor.detach()).to_local()
