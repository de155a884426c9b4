"""What the machine can do of what the configuration asks for, and what takes the place of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from shared.distributed import World
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.deepspeed.config_file import ConfigFile, read_section
from shared.training.deepspeed.config_keys import ZERO_KEY


class MissingCapability(NamedTuple):
    """Something that cannot be done here, and what can."""

    what: str
    instead: str


def adapt_precision(
    settings: DeepSpeedSettings, device: torch.device
) -> tuple[DeepSpeedSettings, list[MissingCapability]]:
    """Let fp32 take the place of a precision that this machine does not have."""
    name = settings.precision.precision
    has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    if (name != "fp16" or device.type != "cpu") and (name != "bf16" or has_bf16):
        return settings, []
    where = "this machine, which has no GPU" if device.type == "cpu" else "this GPU"
    adapted = replace(settings, precision=replace(settings.precision, precision="fp32"))
    return adapted, [MissingCapability(f"{name} cannot be computed on {where}", "fp32")]


def missing_offload(file: ConfigFile) -> list[MissingCapability]:
    """Say where the file wants states on a disk, which no checkpoint of ours holds."""
    missing = []
    for name in ("offload_optimizer", "offload_param"):
        offload = read_section(read_section(file, ZERO_KEY), name)
        if offload.get("device") == "nvme":
            what = f"{ZERO_KEY}.{name}: device nvme is not supported: checkpoints hold states in memory"
            missing.append(MissingCapability(what, "device cpu"))
    return missing


def choose_adam(settings: DeepSpeedSettings, file: ConfigFile, world: World) -> tuple[bool, list[MissingCapability]]:
    """Choose between torch's Adam (True) and DeepSpeed's, which is compiled at its first use; every rank calls this.

    Without a GPU torch's is used unless the file insists: it is as fast there, and nothing has to be compiled.
    """
    if settings.optimizer.optimizer == "sgd":
        return False, []
    wish = read_section(read_section(file, "optimizer"), "params").get("torch_adam")
    if wish is True or (wish is not False and world.device.type == "cpu"):
        return True, []
    builder = "FusedAdamBuilder" if settings.zero.offload == "none" else "CPUAdamBuilder"
    # One process of each node compiles; the others then find the result.
    error: str = world.once(
        lambda: _compile(builder), name=f"compile {builder}", scope="node", timeout=world.solo_timeout
    )
    errors: list[str] = [found for found in world.gather(error, f"outcome of {builder}") if found]
    if not errors:
        return False, []
    name = builder.removesuffix("Builder")
    return True, [MissingCapability(f"DeepSpeed's {name} cannot be compiled here ({errors[0]})", "torch's Adam")]


def _compile(builder: str) -> str:
    """Compile an operator of DeepSpeed, or take what was compiled before; what was wrong, or an empty text."""
    from deepspeed.ops import op_builder

    try:
        getattr(op_builder, builder)().load(verbose=False)
    except Exception as error:  # noqa: BLE001  (compilers, missing headers, CUDA of another version)
        return " ".join(str(error).split())[:300] or type(error).__name__
    return ""
