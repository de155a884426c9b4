"""This rank's part of a decoder: built without memory, filled once it is divided, put together to be saved."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import DecoderModel, DecoderSettings, ModelCard, save_model
from shared.models.decoder import first_values
from shared.models.package import empty_decoder
from shared.settings.network import DecoderSizes
from shared.settings.sharding import ParallelSettings
from shared.training.fsdp.layout import check_divisible
from shared.training.fsdp.mesh import RankMesh
from shared.training.fsdp.pieces import pieces_of
from shared.training.torch.start import card_of_decoder


def make_stage(
    sizes: DecoderSizes, data: Dataset, mesh: RankMesh, dtype: torch.dtype
) -> tuple[DecoderModel, ModelCard]:
    """Build this rank's stage of a language model, without memory, and describe the whole model.

    Raises:
        Refusal: if there can be no such model, or if it does not divide over the ranks.
    """
    assert data.index.text is not None  # noqa: S101  # of another task, the data is refused when it is opened
    if mesh.layout.pipeline_parallel > 1 and data.index.text.documents == "separate":
        raise Refusal(
            f"pipeline_parallel {mesh.layout.pipeline_parallel}: only the first stage sees the tokens that say where "
            "documents end. Prepare the text with documents joined, or set pipeline_parallel to 1."
        )
    card = card_of_decoder(sizes, data.index.text)
    settings = DecoderSettings(**card.settings)
    check_divisible(mesh.layout, card.sequence_length, settings.feed_forward_width)
    return DecoderModel(settings, mesh.stage, mesh.layout.pipeline_parallel).to(dtype), card


def materialise_stage(module: DecoderModel, parallel: ParallelSettings, seed: int, world: World) -> None:
    """Give the parts of a divided decoder memory and their first values: the same on any number of ranks.

    Each parameter is made whole, and a part of it kept: so the memory of the largest one is enough.
    """
    module.to_empty(device="cpu" if parallel.offloads_from(world.device.type) else world.device)
    for name, local, piece in pieces_of(module):
        whole = first_values(name, piece.shape, module.settings.layers, seed)
        local.copy_(whole[piece.slices])


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
