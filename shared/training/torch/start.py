"""The start of a training: torch's settings, seeds, and a model of which it is known that it can be saved."""

from __future__ import annotations

import json
import os
import random
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from shared.data import Dataset, TextEncoding
from shared.data.dataset.index import BYTE_TOKENIZER
from shared.distributed import Refusal, World
from shared.models import DecoderModel, DecoderSettings, ModelCard, NormalisedModel, build_network, check_saveable
from shared.models.decoder import initialise_decoder
from shared.models.llama import llama_name, read_llama_config
from shared.models.package import check_decoder_weights, empty_decoder
from shared.models.weight_files import WeightReader
from shared.settings.network import DecoderSizes, NetworkSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import PrecisionSettings
from shared.storage import read_bytes
from shared.training.core.open_data import card_of_rows
from shared.training.torch.batch_norm import synchronise_batch_norm
from shared.training.torch.initial import take_first_weights
from shared.training.torch.optimization import checkpoint_activations

_TOKENIZER_NAME = "tokenizer.json"


def set_up(world: World, settings: TrainerSettings) -> None:
    """Settings of torch for this process; to be called before it computes anything."""
    if "OMP_NUM_THREADS" not in os.environ:  # or every rank takes all cores
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world.local_world_size))
    if world.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32; on a CPU the default is exact and as fast
        _choose_algorithms(deterministic=settings.precision.deterministic)
    limit_collectives(settings.timeouts.step)


def _choose_algorithms(*, deterministic: bool) -> None:
    """Let the GPU take the fastest algorithms, or those that repeat their bits.

    The variable is what cuBLAS asks for, from CUDA 10.2 on, to repeat its bits; torch refuses to multiply without it.
    """
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def limit_collectives(step_timeout: timedelta) -> None:
    """Let a collective wait for `step_timeout`; to be called again when a framework has made its own groups."""
    if dist.is_initialized():
        # Public from torch 2.14 on, where the other name warns.
        limit = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout  # noqa: SLF001
        for group in list(dist.distributed_c10d._world.pg_map):  # noqa: SLF001
            limit(step_timeout, group)


def seed_generators(seed: int, rank: int | None = None) -> None:
    """Seed torch, NumPy and Python: alike on all ranks without `rank`, differently on each with it."""
    mixed = int(np.random.SeedSequence((seed,) if rank is None else (seed, 1 + rank)).generate_state(1)[0])
    torch.manual_seed(mixed)
    np.random.seed(mixed)  # noqa: NPY002  # the user's model may draw from the legacy generator
    random.seed(mixed)


def make_rows_model(
    network: NetworkSettings,
    precision: PrecisionSettings,
    seed: int,
    data: Dataset,
    world: World,
    dtype: torch.dtype,
    device: torch.device | None = None,
) -> tuple[NormalisedModel, ModelCard]:
    """Build a model for images or tables on a device, the rank's if none is given, with weights of the seed alone.

    Raises:
        Refusal: if it cannot be built, saved, or fed with the dataset's rows.
    """
    card = card_of_rows(network.architecture, data)
    seed_generators(seed)
    net = build_network(card.architecture, card.network_shape, card.outputs, network.model_code)
    card = take_first_weights(network, net, card, world)
    module = NormalisedModel(card.mean, card.std, net, card.target_mean, card.target_std, card.category_sizes)
    check_saveable(module, card, network.model_code)
    _check_output(module, card)
    if network.model_code is not None:
        _note_hidden_state(module.net, world)
    if precision.sync_batch_norm:
        module.net = synchronise_batch_norm(module.net, world)
    if precision.gradient_checkpointing:
        checkpoint_activations(module.net)
    module.to(device or world.device, dtype)
    if world.device.type == "cuda":
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch takes it
    seed_generators(seed, world.rank)
    return module, card


def make_decoder(
    sizes: DecoderSizes,
    precision: PrecisionSettings,
    seed: int,
    text: TextEncoding,
    world: World,
    dtype: torch.dtype,
    device: torch.device | None = None,
    *,
    empty: bool = False,
) -> tuple[DecoderModel, ModelCard]:
    """Build a language model, as `make_rows_model` does; it is ours, so that nothing has to be tried out.

    It is left `empty`, without memory, where its parts are filled when it is divided.

    Raises:
        Refusal: if its context is shorter than the text's sequences, or if it cannot go on from its base.
    """
    card, device = card_of_decoder(sizes, text), device or world.device
    decoder = empty_decoder(card)
    if precision.gradient_checkpointing:
        checkpoint_activations(decoder)
    seed_generators(seed, world.rank)
    if empty:
        return decoder.to(dtype), card
    if sizes.base_model is None:
        return initialise_decoder(decoder, seed).to(dtype).to(device), card
    reader = open_base(sizes.base_model, decoder)
    decoder.to(dtype).to_empty(device=device)
    for name, parameter in decoder.named_parameters():
        reader.read(llama_name(name), parameter.detach(), (0,) * parameter.ndim)
    return decoder, card


def open_base(base: Path, decoder: DecoderModel) -> WeightReader:
    """Open the weights of the model that a decoder, or a part of one, goes on from.

    Raises:
        Refusal: if they are not those of such a decoder.
    """
    reader = WeightReader(base)
    check_decoder_weights(reader, decoder.settings)
    return reader


def card_of_decoder(sizes: DecoderSizes, text: TextEncoding) -> ModelCard:
    """Describe a language model for a text.

    Raises:
        Refusal: if its context is shorter than the text's sequences.
    """
    length, settings = text.sequence_length, decoder_settings(sizes, text)
    if length > settings.context_length:
        raise Refusal(
            f"The data's sequences of {length} tokens are longer than the model's context of "
            f"{settings.context_length}: prepare the text with a sequence_length of {settings.context_length} or less, "
            f"or raise context_length to {length} or more."
        )
    if text.vocabulary > settings.vocabulary:
        raise Refusal(
            f"The data's vocabulary has {text.vocabulary} tokens, that of base_model {settings.vocabulary}: prepare "
            "the text with the model's folder as its tokenizer."
        )
    return ModelCard(
        architecture="decoder",
        input_shape=(length,),
        input_dtype="int64",
        task="language_modeling",
        vocabulary=settings.vocabulary,
        tokenizer=text.tokenizer,
        settings=asdict(settings),
    )


def decoder_settings(sizes: DecoderSizes, text: TextEncoding) -> DecoderSettings:
    """Give all sizes of a language model for a text, or those of the model that it goes on from.

    Raises:
        Refusal: if they do not fit together, or if that is no model that the decoder can be.
    """
    if sizes.base_model is not None:
        there = read_llama_config(sizes.base_model)
        return replace(there, context_length=min(there.context_length, sizes.context_length or there.context_length))
    return DecoderSettings(
        vocabulary=text.vocabulary,
        context_length=sizes.context_length or text.sequence_length,
        layers=sizes.layers,
        width=sizes.width,
        heads=sizes.heads,
        key_value_heads=sizes.key_value_heads or 0,
        feed_forward_width=sizes.feed_forward_width or 0,
        tied=sizes.tie_embeddings,
        separator=text.separator,
    )


def check_same_tokenizer(base: Path | None, data: Dataset) -> None:
    """See that a text was prepared with the tokenizer of the model that is gone on from, if that has one.

    Raises:
        Refusal: if not.
    """
    file, folder = (base or Path()) / _TOKENIZER_NAME, tokenizer_folder(data)
    if base is None or not file.is_file():
        return
    if folder is None or _tokenizer_rules(file) != _tokenizer_rules(folder / _TOKENIZER_NAME):
        raise Refusal(
            f"The data was prepared with another tokenizer ({'bytes' if folder is None else folder}) than {file}: "
            "prepare the text with the model's folder as its tokenizer."
        )


def _tokenizer_rules(file: Path) -> dict[str, object]:
    """What a tokenizer does, apart from filling up and cutting off, which the prepared rows need not."""
    found: dict[str, object] = json.loads(read_bytes(file))
    return {name: value for name, value in found.items() if name not in ("padding", "truncation")}


def tokenizer_folder(data: Dataset) -> Path | None:
    """Folder of a text dataset's tokenizer, which goes into the saved model; None for bytes and for no text."""
    text = data.index.text
    return None if text is None or text.tokenizer == BYTE_TOKENIZER else data.folder / text.tokenizer


def _check_output(module: NormalisedModel, card: ModelCard) -> None:
    """See that two rows come out as they have to, and of all weights, in eval mode, which updates no statistics."""
    rows = torch.zeros((2, *card.input_shape), dtype=getattr(torch, card.input_dtype))
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    try:
        outputs = module.eval()(rows)
    except Exception as error:
        channels_first = (card.input_shape[-1], *card.input_shape[:-1])
        raise Refusal(f"{card.architecture} cannot take rows of shape {channels_first}: {error}") from error
    finally:
        module.train()
    shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
    if shape != (2, card.outputs):
        why = f"with {len(card.classes)} classes" if card.classes else "for a regression"
        raise Refusal(f"{card.architecture} maps 2 rows to {shape}; {why} it has to be (2, {card.outputs}).")
    if not outputs.requires_grad:
        return  # nothing trains; the optimizer refuses that
    outputs.sum().backward()
    unused = [name for name, parameter in trained.items() if parameter.grad is None]
    sparse = [name for name, parameter in trained.items() if parameter.grad is not None and parameter.grad.is_sparse]
    module.zero_grad()
    if unused:  # with several ranks DDP would wait for their gradients for ever
        raise Refusal(
            f"{card.architecture} does not use {', '.join(unused[:5])}{' and more' * (len(unused) > 5)} for its "
            "output in eval mode, in which it is tried. Use these parameters there, remove them, or freeze them with "
            "requires_grad_(False)."
        )
    if sparse:
        raise Refusal(
            f"{card.architecture} has sparse gradients, of {', '.join(sparse[:5])}: clipping and the optimizers need "
            "dense ones. Make the embedding with sparse=False."
        )


def _note_hidden_state(module: torch.nn.Module, world: World) -> None:
    """Name what a checkpoint cannot see: buffers that are not persistent, and tensors and generators in attributes."""
    saved = module.state_dict().keys()
    hidden = [name for name, _ in module.named_buffers() if name not in saved]
    for path, inner in module.named_modules():
        values = ((name, one) for name, one in vars(inner).items() if isinstance(one, torch.Tensor | torch.Generator))
        hidden += [f"{path}.{name}".lstrip(".") for name, _ in values]
    if hidden:
        world.note(
            f"not in checkpoints, so lost when a training resumes: {', '.join(hidden[:8])}"
            f"{' and more' * (len(hidden) > 8)}. Register what changes in training with register_buffer."
        )
