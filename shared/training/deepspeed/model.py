"""The model of train_deepspeed: for a text a language model, for images and tables that of the architecture."""

from __future__ import annotations

import torch

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import DecoderModel, ModelCard, NormalisedModel
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.torch.start import make_decoder, make_rows_model


def make_task_model(
    settings: DeepSpeedSettings, data: Dataset, world: World, device: torch.device
) -> tuple[NormalisedModel | DecoderModel, ModelCard]:
    """Build the model for a dataset on a device, in float32; its weights depend on the seed alone.

    Raises:
        Refusal: if it cannot be built, saved, or fed with the dataset's rows.
    """
    text, precision, seed = data.index.text, settings.precision, settings.seed
    if text is None:
        return make_rows_model(settings.network, precision, seed, data, world, torch.float32, device)
    architecture = settings.network.architecture
    if architecture not in ("decoder", "mlp"):  # mlp is the default of the input
        raise Refusal(f"architecture {architecture} does not take text: set it to decoder.")
    return make_decoder(settings.decoder, precision, seed, text, world, torch.float32, device)
