"""This rank's part of a decoder: built without memory, filled once it is divided."""

from __future__ import annotations

import argparse

import torch

from shared.data import Dataset
from shared.distributed import World
from shared.models import Card, Decoder, DecoderSettings
from shared.models.decoder import first_values
from shared.training.fsdp.layout import check_length, offloads
from shared.training.fsdp.mesh import Mesh
from shared.training.fsdp.pieces import pieces_of
from shared.training.torch.start import card_of


def make_stage(args: argparse.Namespace, data: Dataset, mesh: Mesh, dtype: torch.dtype) -> tuple[Decoder, Card]:
    """Build this rank's stage of the arguments' model, without memory, and describe the whole model.

    Raises:
        Refusal: if there can be no such model, or if it does not divide over the ranks.
    """
    card = card_of(args, data)
    settings = DecoderSettings(**card.settings)
    check_length(mesh.layout, card.sequence_length, settings.feed_forward_width)
    return Decoder(settings, mesh.stage, mesh.layout.pipeline_parallel).to(dtype), card


def materialise(module: Decoder, args: argparse.Namespace, world: World) -> None:
    """Give the parts of a divided decoder memory and their first values: the same on any number of ranks.

    Each parameter is made whole, and a part of it kept: so the memory of the largest one is enough.
    """
    module.to_empty(device="cpu" if offloads(args, world.device.type) else world.device)
    for name, local, piece in pieces_of(module):
        whole = first_values(name, piece.shape, module.settings.layers, args.seed)
        local.copy_(whole[piece.slices])
