"""The whole model on rank 0, parameter by parameter."""

from __future__ import annotations

import torch

from shared.data import Dataset
from shared.distributed import World
from shared.models import ModelCard, save_model
from shared.models.package import from_card
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.deepspeed.engine import HALF_TYPES, whole_parameters
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.torch.start import tokenizer_folder


def save_whole_model(
    engine: DeepSpeedEngine, card: ModelCard, settings: DeepSpeedSettings, data: Dataset, world: World
) -> None:
    """Put the model together on rank 0, and save it there; every rank calls this.

    `model_weights` says whether the saved weights have 32 or 16 bits; normalisation keeps 32.
    """
    dtype = HALF_TYPES.get(settings.zero.model_weights)
    persistent = engine.module.state_dict().keys()
    buffers = {name: buffer for name, buffer in engine.module.named_buffers() if name in persistent}
    state = {name: (buffer.float() if _is_half(buffer) else buffer).cpu() for name, buffer in buffers.items()}
    for name, whole in whole_parameters(engine):
        if world.is_main:
            state[name] = whole.to("cpu", dtype)

    def save() -> None:
        module = from_card(card, settings.network.model_code)
        module.load_state_dict(state, assign=True)
        save_model(settings.model, module, card, settings.network.model_code, tokenizer_folder(data))

    world.once(save, name="save the model", scope="job")


def _is_half(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() == 2
