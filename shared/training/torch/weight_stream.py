"""A model that lies in parts on all ranks, written as whole tensors in files, without being whole anywhere.

Each file has a rank that writes it, so that several ranks write at the same time. A tensor travels to its writer slab
by slab, from whichever ranks hold it; memory for a few slabs is all that it takes. In each round every writer takes one
slab, and all ranks know from a table of places who sends what to whom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import torch
import torch.distributed as dist

from shared.checkpoint.pieces import ShardPart
from shared.distributed import World
from shared.models.weight_files import FileWriter, SavedTensor, WeightFile, divide_tensors, row_slabs

_SLAB_BYTES = 2 * 2**20
_ALL_SLABS = 32 * 2**20
"""Bytes under way at once at most: a rank may hold a part of every writer's slab."""


@dataclass(frozen=True, slots=True)
class _Slab:
    """Rows of a tensor, as it is divided among the ranks, that are the next in a file."""

    file: WeightFile
    tensor: int
    rows: slice


@dataclass(frozen=True, slots=True)
class _Block:
    """A box in a tensor: where it begins and ends on each axis."""

    begin: tuple[int, ...]
    end: tuple[int, ...]

    def meet(self, other: _Block) -> _Block | None:
        """What two have in common; None if that is nothing."""
        begin = tuple(map(max, self.begin, other.begin))
        end = tuple(map(min, self.end, other.end))
        return _Block(begin, end) if all(map(int.__lt__, begin, end)) else None

    def within(self, other: _Block) -> tuple[slice, ...]:
        """Where it is in another one."""
        return tuple(slice(b - o, e - o) for b, e, o in zip(self.begin, self.end, other.begin, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size on each axis."""
        return tuple(e - b for b, e in zip(self.begin, self.end, strict=True))


def write_weights(
    folder: Path, tensors: list[SavedTensor], parts: Iterable[ShardPart], most_bytes: float, world: World
) -> list[WeightFile]:
    """Write tensors into files of `most_bytes` at most; every rank calls this with its parts of them.

    `tensors` are the same on all ranks. A rank has one part of a tensor at most: a block of it, or a range of it
    flattened. An element is in the parts of one rank, or a tensor is whole on all of them.
    """
    files = divide_tensors(tensors, most_bytes)
    stream = _WeightStream(folder, tensors, {part.name: part for part in parts}, files, world)
    stream.run()
    world.barrier("weights are written", timeout=world.solo_timeout)
    return files


class _WeightStream:
    """One rank's share in writing a model."""

    def __init__(
        self,
        folder: Path,
        tensors: list[SavedTensor],
        parts: dict[str, ShardPart],
        files: list[WeightFile],
        world: World,
    ) -> None:
        self.folder, self.tensors, self.parts, self.files, self.world = folder, tensors, parts, files, world
        self.numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
        self.writers = min(len(files), world.world_size)
        self.slab_bytes = max(2**18, min(_SLAB_BYTES, _ALL_SLABS // self.writers))
        self.places = self._exchange_places()
        self.layouts = [self._layout(number) for number in range(len(tensors))]

    def run(self) -> None:
        """Send and write all slabs."""
        schedules = [self._schedule(number) for number in range(self.writers)]
        opened: WeightFile | None = None
        with ExitStack() as stack:
            for round_of in zip_longest(*schedules):
                values = self._exchange(round_of)
                if values is None:
                    continue
                slab = round_of[self._number_of(self.world.rank)]
                if slab.file is not opened:
                    stack.close()
                    opened, writer = slab.file, stack.enter_context(FileWriter(self.folder, slab.file))
                writer.write(values)

    def _rank_of(self, number: int) -> int:
        """Rank of a writer: spread evenly, so that all nodes write."""
        return number * self.world.world_size // self.writers

    def _number_of(self, rank: int) -> int:
        return next((n for n in range(self.writers) if self._rank_of(n) == rank), -1)

    def _schedule(self, number: int) -> Iterator[_Slab]:
        """What a writer writes, in order."""
        for file in self.files[number :: self.writers]:
            for tensor in file.tensors:
                place = self.numbers[tensor.name]
                for rows in row_slabs(self.layouts[place], tensor.dtype.itemsize, self.slab_bytes):
                    yield _Slab(file, place, rows)

    def _layout(self, tensor: int) -> tuple[int, ...]:
        """Shape of a tensor as the ranks divide it: its own, or flattened."""
        saved = self.tensors[tensor]
        flat = len(saved.shape) != 1 and bool((self.places[:, tensor, 0] == 1).any())
        return (math.prod(saved.shape),) if flat or not saved.shape else saved.shape

    def _exchange_places(self) -> torch.Tensor:
        """Let all ranks know where the parts of all lie: (ranks, tensors, 1 + 2 * axes); the axes, or 0 for none."""
        axes = max(1, *(len(tensor.shape) for tensor in self.tensors))
        mine = torch.zeros(len(self.tensors), 1 + 2 * axes, dtype=torch.int64)
        for name, part in self.parts.items():
            offset, size = part.offset or (0,), tuple(part.values.shape) or (1,)
            row = mine[self.numbers[name]]
            row[0] = len(size)
            row[1 : 1 + len(size)], row[1 + axes : 1 + axes + len(size)] = torch.tensor(offset), torch.tensor(size)
        if self.world.world_size == 1:
            return mine[None]
        mine = mine.to(self.world.device)
        found = [torch.empty_like(mine) for _ in range(self.world.world_size)]
        dist.all_gather(found, mine)
        return torch.stack(found).cpu()

    def _part_of(self, rank: int, tensor: int) -> _Block | None:
        ndim, *numbers = self.places[rank, tensor].tolist()
        begin, size = numbers[:ndim], numbers[len(numbers) // 2 : len(numbers) // 2 + ndim]
        return _Block(tuple(begin), tuple(b + s for b, s in zip(begin, size, strict=True))) if ndim else None

    def _exchange(self, round_of: tuple[_Slab | None, ...]) -> torch.Tensor | None:
        """Send what others write of this rank's parts; give the values that this rank writes."""
        operations: list[dist.P2POp] = []
        values: torch.Tensor | None = None
        received: list[tuple[torch.Tensor, torch.Tensor]] = []
        for number, slab in enumerate(round_of):
            if slab is None:
                continue
            writer, layout = self._rank_of(number), self.layouts[slab.tensor]
            block = _Block((slab.rows.start, *(0 for _ in layout[1:])), (slab.rows.stop, *layout[1:]))
            if writer == self.world.rank:
                values = torch.empty(block.shape, dtype=self.tensors[slab.tensor].dtype)
                received = self._collect(slab.tensor, block, values, operations)
            elif not self._has_all(writer, slab.tensor, block):
                here = self._part_of(self.world.rank, slab.tensor)
                common = here and here.meet(block)
                if here is not None and common is not None:
                    operations.append(dist.P2POp(dist.isend, self._cut(slab.tensor, here, common), writer))
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        for where, part in received:
            where.copy_(part)
        return values

    def _collect(
        self, tensor: int, block: _Block, values: torch.Tensor, operations: list[dist.P2POp]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Fill in what is here, and ask for the rest: pairs of where it belongs and where it arrives."""
        rank, pairs, filled = self.world.rank, [], 0
        alone = self._has_all(rank, tensor, block)
        for holder in [rank] if alone else self._holders(tensor):
            there = self._part_of(holder, tensor)
            common = there and there.meet(block)
            if there is None or common is None:
                continue
            where = values[common.within(block)]
            if holder == rank:
                part = self._cut(tensor, there, common)
            else:
                part = torch.empty(common.shape, dtype=values.dtype, device=self.world.device)
                operations.append(dist.P2POp(dist.irecv, part, holder))
            pairs.append((where, part))
            filled += where.numel()
        assert filled == values.numel(), (self.tensors[tensor], block, filled)  # noqa: S101
        return pairs

    def _holders(self, tensor: int) -> list[int]:
        return torch.nonzero(self.places[:, tensor, 0]).flatten().tolist()

    def _has_all(self, rank: int, tensor: int, block: _Block) -> bool:
        """Whether a rank has all of a block itself, as every rank has where nothing is divided."""
        part = self._part_of(rank, tensor)
        return part is not None and part.meet(block) == block

    def _cut(self, tensor: int, here: _Block, common: _Block) -> torch.Tensor:
        """Take a block out of this rank's part, as it is sent: contiguous, of the file's type, on the rank's device."""
        saved = self.tensors[tensor]
        values = self.parts[saved.name].values.detach()
        return (
            (values if values.ndim else values[None])[common.within(here)]
            .to(self.world.device, saved.dtype)
            .contiguous()
        )
