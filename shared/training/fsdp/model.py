"""This rank's part of a decoder: built without memory, filled once it is divided."""

from __future__ import annotations

import torch

from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderModel, DecoderSettings, ModelCard
from shared.models.decoder import first_values
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
