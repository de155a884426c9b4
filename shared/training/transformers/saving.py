"""The trained model as a folder that transformers loads, written by all ranks, each what it holds."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from shared.checkpoint.tensor_file import ShardPart
from shared.data import Dataset
from shared.distributed import World
from shared.models.folder import HUGGINGFACE_NAME, begin_model
from shared.models.transformers.package import finish_transformer
from shared.models.weight_files import SavedTensor, write_index
from shared.settings.running import SavingSettings
from shared.storage import make_folder, retry_transient
from shared.training.fsdp.pieces import local_piece
from shared.training.torch.saved_decoder import SAVED_TYPES, write_weights
from shared.training.torch.start import tokenizer_folder
from shared.training.transformers.start import architecture_of, card_of_transformer


def save_divided_transformer(
    folder: Path,
    net: PreTrainedModel,
    parts: Iterable[ShardPart],
    saving: SavingSettings,
    data: Dataset,
    world: World,
) -> None:
    """Write a model; every rank calls this with its `parts`, by the model's names, and writes some of the files."""

    def begin() -> str:
        place = begin_model(folder) / HUGGINGFACE_NAME
        make_folder(place)
        return str(place)

    place = Path(world.once(begin, name="begin the model", scope="job", timeout=world.solo_timeout))
    make_folder(place)  # another node may not see it yet
    dtype, names = SAVED_TYPES.get(saving.model_weights, torch.float32), _saved_names(net)
    kept = dict(kept_tensors(net))
    tensors = [
        SavedTensor(names[name], tuple(tensor.shape), dtype if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in kept.items()
    ]
    mine = (replace(part, name=names[part.name]) for part in parts)
    files = write_weights(place, tensors, mine, saving.max_shard_bytes, world)

    def finish() -> None:
        config = copy.deepcopy(net.config)
        config.dtype, config.architectures = dtype, [architecture_of(net)]
        retry_transient(lambda: config.save_pretrained(place))
        if net.can_generate() and net.generation_config is not None:
            retry_transient(lambda: net.generation_config.save_pretrained(place))
        write_index(place, files)
        finish_transformer(folder, card_of_transformer(net, data), tokenizer_folder(data))

    world.once(finish, name="save the model", scope="job", timeout=world.solo_timeout)


def divided_parts(net: PreTrainedModel) -> Iterator[ShardPart]:
    """Give the parts of a model that this rank answers for: of what `fully_shard` has divided, and else all of it."""
    for name, tensor in kept_tensors(net):
        local, piece = local_piece(tensor)
        if piece.owned and not piece.empty:
            yield ShardPart(name, local, piece.shape, piece.offset)


def kept_tensors(net: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """What a folder holds of a model: its parameters, tied ones once, and the buffers that are saved."""
    yield from net.named_parameters()
    persistent = net.state_dict().keys()
    yield from ((name, buffer) for name, buffer in net.named_buffers() if name in persistent)


def _saved_names(net: PreTrainedModel) -> dict[str, str]:
    """Each name to that under which others know the tensor, where transformers itself uses another one.

    Where it makes one tensor of several, they keep the names that they have: it reads these too.
    """
    empty = {name: torch.empty(tensor.shape, device="meta") for name, tensor in kept_tensors(net)}
    same = {name: name for name in empty}
    try:
        from transformers.core_model_loading import revert_weight_conversion

        found = revert_weight_conversion(net, dict(empty))
    except (ImportError, RuntimeError, ValueError, KeyError, TypeError, NotImplementedError):
        return same
    names = {id(tensor): name for name, tensor in found.items()}
    converted = {name: names.get(id(tensor), "") for name, tensor in empty.items()}
    return converted if all(converted.values()) and len(found) == len(empty) else same
