"""Component's inputs and the configuration file, made one: what the file says wins, the inputs fill in the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, cast

from shared.settings.deepspeed import DeepSpeedSettings
from shared.settings.fields import values_of
from shared.settings.training import OptimizerSettings
from shared.training.deepspeed.config_file import AUTO_VALUE, ConfigFile, is_set, read_section
from shared.training.deepspeed.config_keys import TORCH_OPTIMIZERS, ZERO_KEY

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
