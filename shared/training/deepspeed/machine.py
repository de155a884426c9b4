"""What the machine can do of what the configuration asks for, and what takes the place of the rest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from shared.distributed import World
from shared.training.deepspeed.file import File, section
from shared.training.deepspeed.keys import ZERO


class Lacking(NamedTuple):
    """Something that cannot be done here, and what can."""

    what: str
    instead: str


def adapt(args: argparse.Namespace, file: File, world: World) -> list[Lacking]:
    """Find what cannot be done on this machine, and change the arguments to what can be done instead."""
    lacking = []
    where = "this machine, which has no GPU" if world.device.type == "cpu" else "this GPU"
    if (args.precision == "fp16" and world.device.type == "cpu") or (
        args.precision == "bf16" and not _has_bf16(world.device)
    ):
        lacking.append(Lacking(f"{args.precision} cannot be computed on {where}", "fp32"))
        args.precision = "fp32"
    for name in ("offload_optimizer", "offload_param"):
        offload = section(section(file, ZERO), name)
        if offload.get("device") == "nvme":
            why = "is not supported" if offload.get("nvme_path") else "is without an nvme_path, and is not supported"
            what = f"{ZERO}.{name}: device nvme {why}: the checkpoints of this component hold states in memory"
            lacking.append(Lacking(what, "device cpu"))
    return lacking


def can_pin(offload: Mapping[str, Any]) -> bool:
    """Whether offloaded states are in page-locked memory: with a GPU, unless the file says no."""
    return bool(offload.get("pin_memory", True)) and torch.cuda.is_available()


def _has_bf16(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def adam(args: argparse.Namespace, file: File, world: World) -> tuple[bool, list[Lacking]]:
    """Choose between torch's Adam (True) and DeepSpeed's, which is compiled at its first use; every rank calls this.

    Without a GPU torch's is used unless the file insists: it is as fast there, and nothing has to be compiled.
    """
    if args.optimizer == "sgd":
        return False, []
    wish = section(section(file, "optimizer"), "params").get("torch_adam")
    if wish is True or (wish is not False and world.device.type == "cpu"):
        return True, []
    builder = "FusedAdamBuilder" if args.offload == "none" else "CPUAdamBuilder"
    # One process of each node compiles; the others then find the result.
    error = world.once(lambda: _compile(builder), name=f"compile {builder}", scope="node")
    errors = [found for found in world.gather(error, f"outcome of {builder}") if found]
    if not errors:
        return False, []
    name = builder.removesuffix("Builder")
    return True, [Lacking(f"DeepSpeed's {name} cannot be compiled here ({errors[0]})", "torch's Adam")]


def _compile(builder: str) -> str:
    """Compile an operator of DeepSpeed, or take what was compiled before; what was wrong, or an empty text."""
    from deepspeed.ops import op_builder

    try:
        getattr(op_builder, builder)().load(verbose=False)
    except Exception as error:  # noqa: BLE001  (compilers, missing headers, CUDA of another version)
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""
