"""A model in DeepSpeed's hands: made, given to the engine, and taken out of it again with what its optimizer keeps."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import cast

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import DecoderModel, ModelCard, NormalisedModel
from shared.models.decoder import first_values
from shared.models.llama import llama_name
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.deepspeed.configuration import DeepSpeedConfiguration
from shared.training.deepspeed.engine_types import DeepSpeedEngine, Stage3Parameter
from shared.training.torch.optimization import parameter_groups
from shared.training.torch.saved_decoder import SAVED_TYPES
from shared.training.torch.start import (
    check_same_tokenizer,
    limit_collectives,
    make_decoder,
    make_rows_model,
    open_base,
)


def make_task_model(
    settings: DeepSpeedSettings, data: Dataset, world: World, device: torch.device
) -> tuple[NormalisedModel | DecoderModel, ModelCard]:
    """Build the model for a dataset on a device, in float32; its weights depend on the seed alone.

    A language model of stage 3 has none yet: `start_engine` gives each rank its parts of them.

    Raises:
        Refusal: if it cannot be built, saved, or fed with the dataset's rows.
    """
    text, precision, seed = data.index.text, settings.precision, settings.seed
    if text is None:
        return make_rows_model(settings.network, precision, seed, data, world, torch.float32, device)
    architecture = settings.network.architecture
    if architecture not in ("decoder", "mlp"):  # mlp is the default of the input
        raise Refusal(f"architecture {architecture} does not take text: set it to decoder.")
    check_same_tokenizer(settings.decoder.base_model, data)
    empty = settings.zero.zero_stage == 3
    return make_decoder(settings.decoder, precision, seed, text, world, torch.float32, device, empty=empty)


def start_engine(module: nn.Module, config: DeepSpeedConfiguration, device: torch.device) -> DeepSpeedEngine:
    """Give the model to DeepSpeed, which keeps, shards and changes its parameters from now on; every rank calls this.

    In bf16 and fp16 the parameters have 16 bits, and the optimizer has a float32 copy of them.
    """
    settings, precision = config.settings, config.settings.precision
    document = config.document(sum(parameter.numel() for parameter in module.parameters()))
    if precision.precision in SAVED_TYPES:
        _halve(module, SAVED_TYPES[precision.precision])
    if next(module.parameters()).is_meta:
        module.to_empty(device="cpu")  # which takes no memory before somebody writes into it
    groups = parameter_groups(module, settings.optimizer.suited_decay)
    if config.stage == 3:
        deepspeed.zero.Init(module=module, config_dict_or_path=document)
        if isinstance(module, DecoderModel):
            fill_shards(module, settings.decoder.base_model, settings.seed)
        for buffer in module.buffers():
            buffer.data = buffer.data.to(device)
    made = deepspeed.initialize(model=module, model_parameters=groups, config=document)
    engine = cast("DeepSpeedEngine", made[0])
    for parameter, master in master_copies(engine.optimizer).items():  # a step is made already, to have states
        master.data.copy_(parameter.data)
        optimizer_states(engine).clear()
    if precision.compile:
        engine.compile()
    limit_collectives(settings.timeouts.step)  # in DeepSpeed's own groups too
    return engine


def _halve(module: nn.Module, dtype: torch.dtype) -> None:
    """Give the parameters 16 bits, and let the network take what comes in float32 from the normalisation before it."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(dtype)
    for part in module.modules():
        if isinstance(part, _BatchNorm):  # wants its statistics in the type of its parameters
            part.to(dtype)
    if isinstance(module, NormalisedModel):
        module.net.register_forward_pre_hook(lambda _, inputs: tuple(x.to(dtype) for x in inputs))


def master_copies(optimizer: object) -> dict[torch.Tensor, torch.Tensor]:
    """Parameters of 16 bits to their float32 copies, where there is no ZeRO; empty in all other cases."""
    if not isinstance(optimizer, FP16_UnfusedOptimizer):
        return {}
    pairs = zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True)
    return {parameter: master for pair in pairs for parameter, master in zip(*pair, strict=True)}


def optimizer_states(engine: DeepSpeedEngine) -> MutableMapping[torch.Tensor, dict[str, object]]:
    """What the optimizer keeps of each tensor that it changes: entries by name."""
    optimizer: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    return optimizer.state


def whole_parameters(engine: DeepSpeedEngine) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter by name, whole and in the optimizer's precision; every rank goes through all of them."""
    masters = master_copies(engine.optimizer)
    for name, parameter in engine.module.named_parameters():
        whole: torch.Tensor | None = masters.get(parameter)
        if whole is None:
            whole = deepspeed.utils.safe_get_full_fp32_param(parameter)
        if whole is None:  # it does not train, or there is no ZeRO
            with deepspeed.zero.GatheredParameters(parameter, enabled=hasattr(parameter, "ds_id")):
                whole = parameter.detach().clone()
        yield name, whole


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
