"""This rank's part of a decoder: built without memory, filled once it is divided, and what it is saved from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from shared.checkpoint.tensor_file import ShardPart
from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderModel, DecoderSettings, ModelCard
from shared.models.decoder import first_values
from shared.models.llama import llama_name
from shared.settings.network import DecoderSizes
from shared.training.fsdp.layout import check_divisible
from shared.training.fsdp.mesh import RankMesh
from shared.training.fsdp.pieces import pieces_of
from shared.training.torch.start import card_of_decoder, check_same_tokenizer, open_base, seed_generators


def make_stage(
    sizes: DecoderSizes, data: Dataset, mesh: RankMesh, dtype: torch.dtype
) -> tuple[DecoderModel, ModelCard]:
    """Build this rank's stage of a language model, without memory, and describe the whole model.

    Raises:
        Refusal: if there can be no such model, or if it does not divide over the ranks.
    """
    assert data.index.text is not None  # noqa: S101  # of another task, the data is refused when it is opened
    check_same_tokenizer(sizes.base_model, data)
    card = card_of_decoder(sizes, data.index.text)
    settings = DecoderSettings(**card.settings)
    check_divisible(mesh.layout, card.sequence_length, settings.feed_forward_width)
    return DecoderModel(settings, mesh.stage, mesh.layout.pipeline_parallel).to(dtype), card


def materialise_stage(module: DecoderModel, seed: int, world: World, base: Path | None = None) -> None:
    """Give the parts of a divided decoder memory and their first values: the same on any number of ranks.

    Of a `base`, each rank reads the parts that it holds. Without one, each parameter is made whole, and a part of it
    kept: so the memory of the largest one is enough. What draws random numbers while it trains is seeded by rank.

    Raises:
        Refusal: if the base has not the weights of the model.
    """
    seed_generators(seed, world.rank)
    module.to_empty(device=world.device)
    if base is None:
        for name, local, piece in pieces_of(module):
            whole = first_values(name, piece.shape, module.settings.layers, seed)
            local.copy_(whole[piece.slices])
        return
    reader = open_base(base, module)
    for name, local, piece in pieces_of(module):
        if not piece.empty:
            reader.read(llama_name(name), local, piece.offset)


def owned_parts(module: DecoderModel) -> Iterator[ShardPart]:
    """Give the parts of the parameters that this rank answers for, by the decoder's names."""
    for name, local, piece in pieces_of(module):
        if piece.owned and not piece.empty:
            yield ShardPart(name, local, piece.shape, piece.offset)
