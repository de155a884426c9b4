"""The whole model on rank 0, part by part: no rank has to hold more than that, and only rank 0 that much."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from shared.distributed import World
from shared.models import DecoderModel, ModelCard, save_model
from shared.models.package import empty_decoder
from shared.training.fsdp.pieces import pieces_of


def save_whole_model(
    folder: str | Path, module: DecoderModel, card: ModelCard, world: World, tokenizer: Path | None
) -> None:
    """Write the model that lies in parts on all ranks; every rank calls this, rank 0 writes."""
    whole = gather_decoder(module, card, world)
    world.once(
        lambda: None if whole is None else save_model(folder, whole, card, tokenizer=tokenizer),
        name="save the model",
        scope="job",
    )


def gather_decoder(module: DecoderModel, card: ModelCard, world: World) -> DecoderModel | None:
    """Put the parts of all ranks together on the CPU of rank 0; None on the others.

    Every rank calls this; they send their parts one after the other, each of them once.
    """
    mine = {name: (local, piece) for name, local, piece in pieces_of(module) if piece.owned and not piece.empty}
    places = [(name, list(piece.offset), list(piece.size)) for name, (_, piece) in mine.items()]
    everywhere = world.collect(places, "parts of the model")
    if everywhere is None:
        for local, _ in mine.values():
            dist.send(local.to(world.device).contiguous(), 0)
        return None
    dtype = next(module.parameters()).dtype
    whole = empty_decoder(card).to(dtype).to_empty(device="cpu")
    parameters = {name: parameter.detach() for name, parameter in whole.named_parameters()}
    for rank, parts in enumerate(everywhere):
        for name, offset, size in parts:
            if rank == 0:
                part = mine[name][0]
            else:
                part = torch.empty(size, dtype=dtype, device=world.device)
                dist.recv(part, rank)
            where = tuple(slice(start, start + length) for start, length in zip(offset, size, strict=True))
            parameters[name][where].copy_(part)
    return whole
