"""A model in DeepSpeed's hands: made, given to the engine, and taken out of it again with what its optimizer keeps."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import cast

import deepspeed
import torch
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import DecoderModel, ModelCard, NormalisedModel, save_model
from shared.models.package import from_card
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.deepspeed.configuration import DeepSpeedConfiguration
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.torch.optimization import parameter_groups
from shared.training.torch.start import limit_collectives, make_decoder, make_rows_model, tokenizer_folder

_HALF_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


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


def start_engine(module: nn.Module, config: DeepSpeedConfiguration, device: torch.device) -> DeepSpeedEngine:
    """Give the model to DeepSpeed, which keeps, shards and changes its parameters from now on; every rank calls this.

    In bf16 and fp16 the parameters have 16 bits, and the optimizer has a float32 copy of them.
    """
    settings, precision = config.settings, config.settings.precision
    groups = parameter_groups(module, settings.optimizer.suited_decay)
    document = config.document(sum(parameter.numel() for parameter in module.parameters()))
    if precision.precision in _HALF_TYPES:
        _halve(module, _HALF_TYPES[precision.precision])
    if config.stage == 3:
        deepspeed.zero.Init(module=module, config_dict_or_path=document)
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


def save_whole_model(
    engine: DeepSpeedEngine, card: ModelCard, settings: DeepSpeedSettings, data: Dataset, world: World
) -> None:
    """Put the model together on rank 0, and save it there; every rank calls this.

    `model_weights` says whether the saved weights have 32 or 16 bits; normalisation keeps 32.
    """
    dtype = _HALF_TYPES.get(settings.zero.model_weights)
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
