"""The start of a training: torch's settings, seeds, and a model of which it is known that it can be saved."""

from __future__ import annotations

import os
import random
from dataclasses import asdict
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
from shared.models.package import empty_decoder
from shared.settings.network import DecoderSizes, NetworkSettings
from shared.settings.training import PrecisionSettings
from shared.training.core.open_data import card_of_rows
from shared.training.torch.batch_norm import synchronise_batch_norm
from shared.training.torch.optimization import checkpoint_activations


def set_up(world: World, step_timeout: timedelta) -> None:
    """Settings of torch for this process."""
    if "OMP_NUM_THREADS" not in os.environ:  # or every rank takes all cores
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world.local_world_size))
    if world.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32; on a CPU the default is exact and as fast
        torch.backends.cudnn.deterministic = True  # a resumed run ends with the same weights
    limit_collectives(step_timeout)


def limit_collectives(step_timeout: timedelta) -> None:
    """Let a collective wait for `step_timeout`; to be called again when a framework has made its own groups."""
    if dist.is_initialized():
        for group in list(dist.distributed_c10d._world.pg_map):  # noqa: SLF001
            # Public as dist.set_timeout from torch 2.14 on.
            dist.distributed_c10d._set_pg_timeout(step_timeout, group)  # noqa: SLF001


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
    net = build_network(card.architecture, card.input_shape, card.outputs, network.model_code)
    module = NormalisedModel(card.mean, card.std, net, card.target_mean, card.target_std)
    check_saveable(module, card, network.model_code)
    _check_output(module, card)
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
) -> tuple[DecoderModel, ModelCard]:
    """Build a language model, as `make_rows_model` does; it is ours, so that nothing has to be tried out.

    Raises:
        Refusal: if its context is shorter than the text's sequences.
    """
    card = card_of_decoder(sizes, text)
    decoder = initialise_decoder(empty_decoder(card), seed)
    if precision.gradient_checkpointing:
        checkpoint_activations(decoder)
    decoder.to(dtype)
    seed_generators(seed, world.rank)
    return decoder.to(device or world.device), card


def card_of_decoder(sizes: DecoderSizes, text: TextEncoding) -> ModelCard:
    """Describe a language model for a text.

    Raises:
        Refusal: if its context is shorter than the text's sequences.
    """
    length = text.sequence_length
    context = sizes.context_length or length
    if length > context:
        raise Refusal(
            f"The data's sequences of {length} tokens are longer than the model's context of {context}: prepare the "
            f"text with a sequence_length of {context} or less, or raise context_length to {length} or more."
        )
    settings = DecoderSettings(
        vocabulary=text.vocabulary,
        context_length=context,
        layers=sizes.layers,
        width=sizes.width,
        heads=sizes.heads,
        key_value_heads=sizes.key_value_heads or 0,
        feed_forward_width=sizes.feed_forward_width or 0,
        tied=sizes.tie_embeddings,
        separator=text.separator,
    )
    return ModelCard(
        architecture="decoder",
        input_shape=(length,),
        input_dtype="int64",
        task="language_modeling",
        vocabulary=text.vocabulary,
        tokenizer=text.tokenizer,
        settings=asdict(settings),
    )


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
    gradients = torch.autograd.grad(outputs.sum(), list(trained.values()), allow_unused=True)
    unused = [name for name, gradient in zip(trained, gradients, strict=True) if gradient is None]
    if unused:  # with several ranks DDP would wait for their gradients for ever
        raise Refusal(
            f"{card.architecture} does not use {', '.join(unused[:5])}{' and more' * (len(unused) > 5)} for its "
            "output. Remove these parameters, or freeze them with requires_grad_(False)."
        )
