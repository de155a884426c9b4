"""One configuration for DeepSpeed: of the file, the component's inputs, and the machine."""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import dataclass

import torch

from shared.distributed import Refusal, World
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.deepspeed.capabilities import adapt_precision, choose_adam, missing_offload
from shared.training.deepspeed.config_file import (
    ACCUMULATION_KEY,
    BATCH_KEY,
    MICRO_BATCH_KEY,
    ConfigFile,
    is_set,
    read_section,
)
from shared.training.deepspeed.config_keys import (
    OFFLOAD_SECTIONS,
    TORCH_OPTIMIZERS,
    UNUSED_KEYS,
    ZERO_KEY,
    apply_config_file,
    describe_changes,
    find_contradictions,
    find_key_problems,
)

_SIXTEEN_BITS = ("fp16", "bf16")


@dataclass(frozen=True, slots=True)
class DeepSpeedConfiguration:
    """What a training with DeepSpeed goes by: settings as the file and the machine have changed them, and the file.

    With `torch_adam` torch's Adam takes the place of DeepSpeed's own, which has to be compiled.
    """

    settings: DeepSpeedSettings
    file: ConfigFile
    plan: BatchPlan
    torch_adam: bool

    @property
    def stage(self) -> int:
        """ZeRO stage, 0 to 3."""
        return self.settings.zero.zero_stage

    def build_device(self, device: torch.device) -> torch.device:
        """Where the model is built: in stage 3 beside the GPU, which gets one parameter after the other, and shares."""
        return torch.device("cpu") if self.stage == 3 else device

    def document(self, parameters: int) -> dict[str, object]:
        """What `deepspeed.initialize` gets, for a model of so many parameters."""
        ours = {BATCH_KEY, MICRO_BATCH_KEY, ACCUMULATION_KEY, ZERO_KEY, *UNUSED_KEYS}
        ours |= {"optimizer", "scheduler", "bfloat16"}
        document = {name: deepcopy(value) for name, value in self.file.items() if name not in ours and is_set(value)}
        document |= {
            BATCH_KEY: self.plan.batch_size,
            MICRO_BATCH_KEY: self.plan.rows_per_pass,
            ACCUMULATION_KEY: self.plan.accumulation_steps,
            "gradient_clipping": self.settings.optimizer.clip_norm,
            "optimizer": self._optimizer(),
            "zero_allow_untested_optimizer": True,  # torch's SGD: our tests hold its results against train_ddp's
            ZERO_KEY: self._zero(parameters),
        }
        for name in _SIXTEEN_BITS:
            found = read_section(self.file, name, *(["bfloat16"] if name == "bf16" else []))
            document[name] = {**found, "enabled": self.settings.precision.precision == name}
        return document

    def _optimizer(self) -> dict[str, object]:
        ours = self.settings.optimizer
        found = read_section(read_section(self.file, "optimizer"), "params")
        # Without DeepSpeed's own, such as torch_adam.
        own = inspect.signature(TORCH_OPTIMIZERS[ours.optimizer]).parameters
        params = {name: value for name, value in found.items() if is_set(value) and name in own}
        params |= {"lr": ours.learning_rate, "weight_decay": ours.suited_decay}
        if ours.optimizer == "sgd":
            params |= {"momentum": ours.momentum}
            return {"type": "SGD", "params": {"nesterov": ours.momentum > 0, "fused": True, **params}}
        betas = params.get("betas")
        params["betas"] = [ours.momentum, *(betas[1:] if isinstance(betas, list) else [ours.beta2])]
        torch_adam = self.torch_adam or (self.stage == 0 and self.settings.precision.precision in _SIXTEEN_BITS)
        mode = {"torch_adam": True, "fused": True} if torch_adam else {"torch_adam": False}
        return {"type": "Adam", "params": {**params, **mode, "adam_w_mode": ours.optimizer == "adamw"}}

    def _zero(self, parameters: int) -> dict[str, object]:
        """ZeRO's section; what the file leaves open is in proportion to the model.

        DeepSpeed's own sizes are for billions of parameters: in smaller models its buckets hold all gradients once
        more, and stage 3 keeps all parameters whole from the forward to the backward pass.
        """
        found = {name: value for name, value in read_section(self.file, ZERO_KEY).items() if is_set(value)}
        zero: dict[str, object] = {"reduce_bucket_size": _part(500_000_000, parameters)}
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = _part(50_000_000, parameters)
            zero["stage3_max_live_parameters"] = _part(1_000_000_000, parameters)
            zero["stage3_max_reuse_distance"] = _part(1_000_000_000, parameters)
        else:
            zero["allgather_bucket_size"] = _part(500_000_000, parameters)
        short = {name.removeprefix("stage3_"): name for name in zero}  # DeepSpeed takes both names, but not together
        zero |= {short.get(name, name): value for name, value in found.items() if name not in OFFLOAD_SECTIONS["all"]}
        for name in OFFLOAD_SECTIONS[self.settings.zero.offload]:
            section = read_section(found, name).items()
            offload = {key: value for key, value in section if is_set(value) and key != "nvme_path"}
            pinned = bool(offload.get("pin_memory", True)) and torch.cuda.is_available()  # unless the file says no
            zero[name] = {**offload, "device": "cpu", "pin_memory": pinned}
        return {**zero, "stage": self.stage}


def _part(largest: int, parameters: int) -> int:
    """An eighth of the model, within limits: sizes are in elements."""
    return min(largest, max(parameters // 8, 1_000_000))


def make_configuration(
    settings: DeepSpeedSettings, file: ConfigFile, plan: BatchPlan, world: World
) -> DeepSpeedConfiguration:
    """Bring together the file, the inputs and what this machine can do; every rank calls this.

    Raises:
        Refusal: with all that is wrong.
    """
    wrong = list(find_key_problems(file))
    wanted = apply_config_file(settings, file)
    wrong += [] if wrong else find_contradictions(wanted, file)
    settled, missing = adapt_precision(wanted, world.device)
    missing += missing_offload(file)
    torch_adam, more = (True, []) if wrong else choose_adam(settled, file, world)
    missing += more
    if settings.zero.on_unsupported == "fail":
        wrong += [f"{what} (on_unsupported=replace would take {instead})" for what, instead in missing]
    if wrong:
        raise Refusal("DeepSpeed cannot be configured like this:" + "".join(f"\n  {line}." for line in wrong))
    notes = [f"WARNING: {what}; replaced by {instead}" for what, instead in missing]
    for line in [describe_changes(settings, wanted), *notes]:
        if line:
            world.note(line)
    return DeepSpeedConfiguration(settled, file, plan, torch_adam)
