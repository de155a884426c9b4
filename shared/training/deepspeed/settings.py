"""Component's inputs and the configuration file, made one: what the file says wins, the inputs fill in the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from shared.training.deepspeed.file import File, given, section
from shared.training.deepspeed.keys import ZERO

OFFLOAD = {"none": (), "optimizer": ("offload_optimizer",), "all": ("offload_optimizer", "offload_param")}
"""Values of the input `offload`, and the sections of zero_optimization that say the same."""
OLD = ("cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory")
BEYOND = ("zenflow", "legacy_stage1", "elastic_checkpoint")


def settle(args: argparse.Namespace, file: File) -> argparse.Namespace:
    """The arguments with what the file decides in their place, as far as it makes sense; see `contradictions`."""
    settled = argparse.Namespace(**vars(args))
    for name, value in _decided(args, file).items():
        if given(value):
            setattr(settled, name, value)
    return settled


def differences(args: argparse.Namespace, settled: argparse.Namespace) -> str:
    """A line about what the file has changed, or an empty text."""
    pairs = [(name, value, getattr(args, name)) for name, value in vars(settled).items()]
    changed = [
        f"{name} {value} (the input {'is empty' if before is None else f'says {before}'})"
        for name, value, before in pairs
        if value != before
    ]
    return f"the configuration file decides: {', '.join(changed)}" if changed else ""


def contradictions(settled: argparse.Namespace, file: File) -> Iterator[str]:
    """What cannot be done together, a sentence for each."""
    zero = section(file, ZERO)
    stage, offload = settled.zero_stage, settled.offload
    if offload != "none" and stage == 0:
        yield f"offload {offload} needs zero_stage 1, 2 or 3, and it is 0: without ZeRO every rank keeps its states"
    elif offload == "all" and stage != 3:
        yield f"offload all needs zero_stage 3, and it is {stage}: below 3 every rank keeps all parameters"
    if all(section(file, name).get("enabled") is True for name in ("fp16", "bf16")):
        yield "fp16 and bf16 are both enabled: choose one"
    for name in OLD:
        if name in zero:
            yield f"{ZERO}.{name} is of older versions of DeepSpeed: use offload_optimizer or offload_param"
    for name in BEYOND:
        if zero.get(name):
            yield f"{ZERO}.{name} is not for this component: its checkpoints do not know it"
    if section(zero, "offload_optimizer").get("super_offload"):
        yield f"{ZERO}.offload_optimizer.super_offload is not for this component: its checkpoints do not know it"
    if (zero.get("zero_hpz_partition_size") or 1) not in {1, "auto"}:
        yield f"{ZERO}.zero_hpz_partition_size is not for this component: its checkpoints do not know it"
    yield from _not_numbers(file)


def _decided(args: argparse.Namespace, file: File) -> dict[str, Any]:
    """What the file says about arguments; None or "auto" where it says nothing."""
    zero, optimizer = section(file, ZERO), section(file, "optimizer")
    params = section(optimizer, "params")
    decided: dict[str, Any] = {"zero_stage": zero.get("stage"), "clip_norm": file.get("gradient_clipping")}
    if any(section(zero, name) for name in OFFLOAD["all"]):
        devices = {name for name in OFFLOAD["all"] if section(zero, name).get("device") not in {None, "none"}}
        decided["offload"] = "all" if "offload_param" in devices else "optimizer" if devices else "none"
    enabled = [name for name in ("fp16", "bf16") if section(file, name, "bfloat16").get("enabled") is True]
    decided["precision"] = enabled[0] if enabled else None
    if "optimizer" not in file:
        return decided
    kind = str(optimizer.get("type", "auto")).lower()
    if kind == "adam" and params.get("adam_w_mode", True) is True:
        kind = "adamw"  # as DeepSpeed has it
    betas = params.get("betas")
    decided |= {
        "optimizer": kind,
        "learning_rate": params.get("lr"),
        "weight_decay": params.get("weight_decay"),
        "momentum": betas[0] if isinstance(betas, list) and betas else params.get("momentum"),
    }
    if decided["weight_decay"] is None and args.weight_decay is None and given(kind):
        decided["weight_decay"] = 0.0  # DeepSpeed's own default, as who writes the file expects
    return decided


def _not_numbers(file: File) -> Iterator[str]:
    params = section(section(file, "optimizer"), "params")
    places: Mapping[str, Any] = {
        "gradient_clipping": file.get("gradient_clipping"),
        **{f"optimizer.params.{name}": params.get(name) for name in ("lr", "eps", "weight_decay", "momentum")},
    }
    for place, value in places.items():
        if given(value) and (not isinstance(value, int | float) or isinstance(value, bool) or value < 0):
            yield f"{place} has to be a number of 0 or more, not {value!r}"
    betas = params.get("betas")
    if given(betas) and not (isinstance(betas, list) and len(betas) == 2 and all(isinstance(b, float) for b in betas)):
        yield f"optimizer.params.betas has to be two numbers, not {betas!r}"
