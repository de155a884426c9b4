"""A language model that lies in parts on all ranks, saved as a model that MLflow serves and transformers loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from shared.checkpoint.tensor_file import ShardPart
from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderSettings, ModelCard
from shared.models.folder import HUGGINGFACE_NAME, begin_model
from shared.models.llama import llama_name, llama_tensors
from shared.models.package import finish_decoder
from shared.models.weight_files import FileWriter, SavedTensor, WeightFile, divide_tensors, write_index
from shared.settings.running import SavingSettings
from shared.storage import make_folder
from shared.training.torch.start import tokenizer_folder

_Box: TypeAlias = tuple[list[int], list[int]]
"""Offset and size of a part, per axis of the tensor or of the flattened tensor."""


def write_weights(
    folder: Path, tensors: list[SavedTensor], parts: Iterable[ShardPart], most_bytes: float, world: World
) -> list[WeightFile]:
    """Write tensors into files of at most `most_bytes`. Collective: every rank passes its parts.

    `tensors` are the same on all ranks. A rank has at most one part of a tensor: a block, or a range of the flattened
    tensor. An element is in the parts of one rank, or a tensor is whole on all ranks. Rank 0 needs the memory of the
    largest tensor.
    """
    files, own = divide_tensors(tensors, most_bytes), {part.name: part for part in parts}
    boxes = world.gather([_box_of(own.get(tensor.name)) for tensor in tensors], "parts of the weights")
    owners = {
        tensor.name: {rank: box for rank, box in enumerate(column) if box is not None}
        for tensor, column in zip(tensors, zip(*boxes, strict=True), strict=True)
    }
    for file in files:
        with FileWriter(folder, file) if world.is_main else nullcontext() as writer:
            for tensor in file.tensors:
                values = _collect(tensor, owners[tensor.name], own.get(tensor.name), world)
                if writer is not None and values is not None:
                    writer.write(values)
        # At the control plane: in a collective the other ranks would wait for at most `step_timeout`.
        world.barrier(f"{file.name} is written", timeout=world.solo_timeout)
    return files


def _box_of(part: ShardPart | None) -> _Box | None:
    return None if part is None or not part.values.numel() else (list(part.offset), list(part.values.shape))


def _collect(tensor: SavedTensor, owners: dict[int, _Box], own: ShardPart | None, world: World) -> torch.Tensor | None:
    """Return the whole tensor on rank 0, in the file's type on the CPU; None on the other ranks."""
    if 0 in owners and math.prod(owners[0][1]) == math.prod(tensor.shape):  # whole on all ranks
        owners = {0: owners[0]}
    if not world.is_main:
        if own is not None and world.rank in owners:
            _transfer(dist.isend, own.values.detach().to(world.device, tensor.dtype).contiguous(), 0)
        return None
    is_flat = any(len(offset) != len(tensor.shape) for offset, _ in owners.values())
    whole = torch.empty(math.prod(tensor.shape) if is_flat else tensor.shape, dtype=tensor.dtype)
    assert sum(math.prod(size) for _, size in owners.values()) == whole.numel(), (tensor, owners)  # noqa: S101
    for rank, (offset, size) in owners.items():
        target = whole[tuple(slice(start, start + length) for start, length in zip(offset, size, strict=True))]
        if rank == 0 and own is not None:
            target.copy_(own.values.detach())
        else:
            part = torch.empty(size, dtype=tensor.dtype, device=world.device)
            _transfer(dist.irecv, part, rank)
            target.copy_(part)
    return whole


def _transfer(operation: Callable[..., Any], values: torch.Tensor, rank: int) -> None:
    """Send to or receive from a rank; as a batch, which with NCCL needs no communicator for each pair of ranks."""
    for work in dist.batch_isend_irecv([dist.P2POp(operation, values, rank)]):
        work.wait()


SAVED_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Of the weights, by the input `model_weights`; fp32 keeps the type in which they train, which may be wider."""


def save_divided_decoder(
    folder: Path,
    parts: Iterable[ShardPart],
    card: ModelCard,
    saving: SavingSettings,
    trained: torch.dtype,
    data: Dataset,
    world: World,
) -> None:
    """Write a model; every rank calls this with its `parts`, by the decoder's names, and writes some of the files.

    `trained` is the type in which the optimizer has the weights.
    """

    def begin() -> str:
        place = begin_model(folder) / HUGGINGFACE_NAME
        make_folder(place)
        return str(place)

    dtype = SAVED_TYPES.get(saving.model_weights, trained)
    place = Path(world.once(begin, name="begin the model", scope="job", timeout=world.solo_timeout))
    make_folder(place)  # another node may not see it yet
    tensors = llama_tensors(DecoderSettings(**card.settings), dtype)
    renamed = (replace(part, name=llama_name(part.name)) for part in parts)
    files = write_weights(place, tensors, renamed, saving.max_shard_bytes, world)
    text = data.index.text

    def finish() -> None:
        write_index(place, files)
        finish_decoder(folder, card, dtype, tokenizer_folder(data), None if text is None else text.end_of_text)

    world.once(finish, name="save the model", scope="job", timeout=world.solo_timeout)
