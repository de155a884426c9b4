"""The first values of a language model that stage 3 has divided: each rank gets its own alone."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch.distributed as dist

from shared.models import DecoderModel
from shared.models.decoder import first_values
from shared.models.llama import llama_name
from shared.training.deepspeed.engine_types import Stage3Parameter
from shared.training.torch.start import open_base


def fill_shards(module: DecoderModel, base: Path | None, seed: int) -> None:
    """Fill this rank's part of each parameter: from the model that is gone on from, or with what the seed gives.

    Raises:
        Refusal: if the base has not the weights of the model.
    """
    reader = None if base is None else open_base(base, module)
    for name, whole in module.named_parameters():
        parameter = cast("Stage3Parameter", whole)
        length = parameter.ds_tensor.numel()
        start = dist.get_rank(parameter.ds_process_group) * length
        size = min(length, parameter.ds_numel - start)  # the last parts are padded
        if size <= 0:
            continue
        part = parameter.ds_tensor.narrow(0, 0, size)
        if reader is not None:
            reader.read_range(llama_name(name), part, start)
        else:
            values = first_values(name, tuple(parameter.ds_shape), module.settings.layers, seed)
            part.copy_(values.view(-1).narrow(0, start, size))
