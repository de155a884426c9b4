"""The trained model, out of DeepSpeed's hands and into a folder."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from shared.checkpoint.tensor_file import ShardPart
from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderModel, ModelCard, save_model
from shared.models.package import from_card
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.deepspeed.engine import whole_parameters
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.deepspeed.fragments import local_fragments
from shared.training.torch.saved_decoder import SAVED_TYPES, save_divided_decoder
from shared.training.torch.start import tokenizer_folder


def save_trained_model(
    engine: DeepSpeedEngine, card: ModelCard, settings: DeepSpeedSettings, data: Dataset, world: World
) -> None:
    """Save the model; every rank calls this. One of images or tables is put together on rank 0, others nowhere.

    `model_weights` says whether the saved weights have 32 or 16 bits; normalisation keeps 32.
    """
    if isinstance(engine.module, DecoderModel):
        save_divided_decoder(settings.model, fragment_parts(engine), card, settings.saving, torch.float32, data, world)
        return
    dtype = SAVED_TYPES.get(settings.saving.model_weights)
    persistent = engine.module.state_dict().keys()
    buffers = {name: buffer for name, buffer in engine.module.named_buffers() if name in persistent}
    half = {name for name, buffer in buffers.items() if buffer.is_floating_point() and buffer.element_size() == 2}
    state = {name: (buffer.float() if name in half else buffer).cpu() for name, buffer in buffers.items()}
    for name, whole in whole_parameters(engine):
        if world.is_main:
            state[name] = whole.to("cpu", dtype)

    def save() -> None:
        module = from_card(card, settings.network.model_code)
        module.load_state_dict(state, assign=True)
        save_model(settings.model, module, card, settings.network.model_code, tokenizer_folder(data))

    world.once(save, name="save the model", scope="job", timeout=world.solo_timeout)


def fragment_parts(engine: DeepSpeedEngine) -> Iterator[ShardPart]:
    """Give this rank's fragments of the parameters that train, in the optimizer's precision."""
    for fragment in local_fragments(engine):
        values = fragment.view_of(fragment.flat)
        yield ShardPart(fragment.name, values, (fragment.numel,), (fragment.start,))
