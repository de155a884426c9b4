"""Check the keys of the configuration file and merge them with the inputs: the file wins, the inputs fill in the rest.

DeepSpeed ignores keys that it does not know; here they are errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast

import torch
from deepspeed.runtime import lr_schedules

from shared.settings.deepspeed import DeepSpeedSettings
from shared.settings.fields import values_of
from shared.settings.training import OptimizerSettings
from shared.training.deepspeed.config_file import (
    ACCUMULATION_KEY,
    AUTO_VALUE,
    BATCH_KEY,
    MICRO_BATCH_KEY,
    ConfigFile,
    is_set,
    read_section,
    suggest_key,
)

ZERO_KEY: Final = "zero_optimization"
TORCH_OPTIMIZERS: Final[Mapping[str, type[torch.optim.Optimizer]]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
"""Those whose state the checkpoints of this component hold; torch's class says which parameters there are."""
_ADAM: Final = ("torch_adam", "adam_w_mode", "fp32_optimizer_states", "bias_correction")
FILE_SCHEDULERS: Final[Mapping[str, Callable[..., Any]]] = {
    "WarmupLR": lr_schedules.WarmupLR,
    "WarmupDecayLR": lr_schedules.WarmupDecayLR,
    "WarmupCosineLR": lr_schedules.WarmupCosineLR,
}

_SECTIONS: Final = (
    *(ZERO_KEY, "fp16", "bf16", "bfloat16", "optimizer", "scheduler", "data_types", "timers", "flops_profiler"),
    *("comms_logger", "tensorboard", "wandb", "csv_monitor", "comet"),
)
_PLAIN: Final = (
    *(BATCH_KEY, MICRO_BATCH_KEY, ACCUMULATION_KEY),
    *("gradient_clipping", "communication_data_type", "gradient_predivide_factor"),
    *("prescale_gradients", "gradient_allreduce_op", "disable_allgather", "disable_python_gc", "log_level"),
    *("steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "vocabulary_size"),
    *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
)
UNUSED_KEYS: Final = ("activation_checkpointing", "aio", "checkpoint", "dataloader_drop_last", "datastates_ckpt")
"""Of what this component does in its own way, or not at all."""

_ELSEWHERE: Final = "model parallelism is in train_fsdp"
_REFUSED: Final[Mapping[str, str]] = {
    "autotuning": "compare short runs with other values of zero_stage and accumulation_steps",
    "compile": "use the input compile",
    "torch_autocast": "use fp16 or bf16",
    "data_efficiency": "the order of the rows is the component's",
    "managed_gradient_accumulation": "use the input accumulation_steps",
    "weight_quantization": "it is for inference",
    "hybrid_engine": "it is for generation while training",
    **dict.fromkeys(("tensor_parallel", "pipeline", "expert_parallel", "sequence_parallel_size"), _ELSEWHERE),
    **dict.fromkeys(("data_parallel_size", "use_data_before_expert_parallelism"), _ELSEWHERE),
    **dict.fromkeys(("seq_parallel_communication_data_type",), _ELSEWHERE),
}
_KNOWN: Final = frozenset({*_PLAIN, *UNUSED_KEYS, *_REFUSED, *_SECTIONS})


def find_key_problems(file: ConfigFile) -> Iterator[str]:
    """What is wrong with the file's keys, a sentence for each; DeepSpeed itself checks most values."""
    for key, value in file.items():
        if key not in _KNOWN:
            yield f"{key} is no key that DeepSpeed knows{suggest_key(key, _KNOWN)}"
        elif key in _REFUSED:
            yield f"{key} is not for this component: {_REFUSED[key]}"
        elif key in _SECTIONS and not isinstance(value, dict):
            yield f"{key} has to be an object, {{...}}, not {value!r}"
    yield from _of_optimizer(read_section(file, "optimizer"))
    kind = read_section(file, "scheduler").get("type", AUTO_VALUE)
    if kind not in (AUTO_VALUE, *FILE_SCHEDULERS):
        hint = suggest_key(str(kind), FILE_SCHEDULERS)
        yield f"scheduler.type {kind!r} is not one of {', '.join(FILE_SCHEDULERS)}{hint}"


def _unknown(where: str, value: Mapping[str, object], known: Iterable[str]) -> Iterator[str]:
    names = list(known)
    for key in value:
        if key not in names:
            yield f"{where}.{key} is no key that DeepSpeed knows{suggest_key(key, names)}"


def _of_optimizer(found: Mapping[str, object]) -> Iterator[str]:
    kind, params = found.get("type", AUTO_VALUE), found.get("params", {})
    name = str(kind).lower()
    known = ", ".join(cls.__name__ for cls in TORCH_OPTIMIZERS.values())
    if not isinstance(params, dict):
        yield f"optimizer.params has to be an object, {{...}}, not {params!r}"
    elif kind == AUTO_VALUE:
        yield from _unknown("optimizer.params", params, ("lr", "betas", "eps", "weight_decay", "momentum", *_ADAM))
    elif name not in TORCH_OPTIMIZERS:
        yield f"optimizer.type {kind!r} is not one of those that this component can save: {known}"
    else:
        own = list(inspect.signature(TORCH_OPTIMIZERS[name]).parameters)[1:]
        yield from _unknown("optimizer.params", params, own + list(_ADAM if "adam" in name else ()))


OFFLOAD_SECTIONS = {"none": (), "optimizer": ("offload_optimizer",), "all": ("offload_optimizer", "offload_param")}
"""Values of the input `offload`, and the sections of zero_optimization that say the same."""
_BEYOND = ("zenflow", "legacy_stage1", "elastic_checkpoint")


def apply_config_file(settings: DeepSpeedSettings, file: ConfigFile) -> DeepSpeedSettings:
    """Put what the file decides in the place of the inputs, as far as it makes sense; see `find_contradictions`."""
    zero, precision = settings.zero, settings.precision
    found = read_section(file, ZERO_KEY)
    stage = int(cast("int", found["stage"])) if is_set(found.get("stage")) else zero.zero_stage
    return replace(
        settings,
        zero=replace(zero, zero_stage=stage, offload=_decided_offload(found) or zero.offload),
        precision=replace(precision, precision=_decided_precision(file) or precision.precision),
        optimizer=_decided_optimizer(settings.optimizer, file),
    )


def describe_changes(settings: DeepSpeedSettings, settled: DeepSpeedSettings) -> str:
    """Make a line about what the file has changed, or an empty text."""
    given = values_of(settings)
    changed = [
        f"{name} {value} (the input {'is empty' if given[name] is None else f'says {given[name]}'})"
        for name, value in values_of(settled).items()
        if value != given[name]
    ]
    return f"the configuration file decides: {', '.join(changed)}" if changed else ""


def find_contradictions(settled: DeepSpeedSettings, file: ConfigFile) -> Iterator[str]:
    """Say what cannot be done together, a sentence for each."""
    zero = read_section(file, ZERO_KEY)
    stage, offload = settled.zero.zero_stage, settled.zero.offload
    if offload != "none" and stage == 0:
        yield f"offload {offload} needs zero_stage 1, 2 or 3, and it is 0: without ZeRO every rank keeps its states"
    elif offload == "all" and stage != 3:
        yield f"offload all needs zero_stage 3, and it is {stage}: below 3 every rank keeps all parameters"
    if all(read_section(file, name).get("enabled") is True for name in ("fp16", "bf16")):
        yield "fp16 and bf16 are both enabled: choose one"
    for name in _BEYOND:
        if zero.get(name):
            yield f"{ZERO_KEY}.{name} is not for this component: its checkpoints do not know it"
    if read_section(zero, "offload_optimizer").get("super_offload"):
        yield f"{ZERO_KEY}.offload_optimizer.super_offload is not for this component: its checkpoints do not know it"
    if (zero.get("zero_hpz_partition_size") or 1) not in {1, AUTO_VALUE}:
        yield f"{ZERO_KEY}.zero_hpz_partition_size is not for this component: its checkpoints do not know it"


def _decided_offload(zero: ConfigFile) -> Literal["none", "optimizer", "all"] | None:
    if not any(read_section(zero, name) for name in OFFLOAD_SECTIONS["all"]):
        return None
    moved = [name for name in OFFLOAD_SECTIONS["all"] if read_section(zero, name).get("device") not in {None, "none"}]
    return "all" if "offload_param" in moved else "optimizer" if moved else "none"


def _decided_precision(file: ConfigFile) -> Literal["fp16", "bf16"] | None:
    if read_section(file, "fp16").get("enabled") is True:
        return "fp16"
    return "bf16" if read_section(file, "bf16", "bfloat16").get("enabled") is True else None


def _decided_optimizer(settings: OptimizerSettings, file: ConfigFile) -> OptimizerSettings:
    clip_norm = _number(file.get("gradient_clipping"), settings.clip_norm)
    if "optimizer" not in file:
        return replace(settings, clip_norm=clip_norm)
    found = read_section(file, "optimizer")
    params, kind = read_section(found, "params"), str(found.get("type", AUTO_VALUE)).lower()
    if kind == "adam" and params.get("adam_w_mode", True) is True:
        kind = "adamw"  # as DeepSpeed has it
    decay, betas = settings.weight_decay, params.get("betas")
    if decay is None and params.get("weight_decay") is None and is_set(kind):
        decay = 0.0  # DeepSpeed's own default, as who writes the file expects
    elif is_set(params.get("weight_decay")):
        decay = cast("float", params["weight_decay"])
    return replace(
        settings,
        optimizer=cast('Literal["sgd", "adam", "adamw"]', kind) if kind in TORCH_OPTIMIZERS else settings.optimizer,
        learning_rate=_number(params.get("lr"), settings.learning_rate),
        momentum=_number(betas[0] if isinstance(betas, list) and betas else params.get("momentum"), settings.momentum),
        weight_decay=decay,
        clip_norm=clip_norm,
    )


def _number(value: object, otherwise: float) -> float:
    return cast("float", value) if is_set(value) else otherwise
