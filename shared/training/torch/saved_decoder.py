"""A language model that lies in parts on all ranks, saved as a model that MLflow serves and transformers loads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from shared.checkpoint.tensor_file import ShardPart
from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderSettings, ModelCard
from shared.models.folder import HUGGINGFACE_NAME, begin_model
from shared.models.llama import llama_name, llama_tensors
from shared.models.package import finish_decoder
from shared.models.weight_files import write_index
from shared.settings.running import SavingSettings
from shared.storage import make_folder
from shared.training.torch.start import tokenizer_folder
from shared.training.torch.weight_stream import write_weights

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
