"""One configuration for DeepSpeed: of the file, the component's inputs, and the machine."""

from __future__ import annotations

import argparse
import inspect
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch

from shared.distributed import Refusal, World
from shared.training.core.batch_plan import BatchPlan, weight_decay
from shared.training.deepspeed import keys, machine
from shared.training.deepspeed.batches import ACCUMULATION, BATCH, MICRO
from shared.training.deepspeed.file import File, given, section
from shared.training.deepspeed.settings import OFFLOAD, contradictions, differences, settle

SIXTEEN_BITS = ("fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a training with DeepSpeed goes by.

    Attributes:
        args: the arguments, with what the file and the machine have changed.
        file: the user's configuration, or an empty one.
        plan: how a batch is split.
        torch_adam: torch's Adam takes the place of DeepSpeed's own, which has to be compiled.
    """

    args: argparse.Namespace
    file: File
    plan: BatchPlan
    torch_adam: bool

    @property
    def stage(self) -> int:
        """ZeRO stage, 0 to 3."""
        return int(self.args.zero_stage)

    def first_place(self, device: torch.device) -> torch.device:
        """Where the model is built: in stage 3 beside the GPU, which gets one parameter after the other, and shares."""
        return torch.device("cpu") if self.stage == 3 else device

    def with_(self, stage: int, plan: BatchPlan) -> Configuration:
        """The same with another stage and another split of the same batch."""
        return replace(self, args=argparse.Namespace(**{**vars(self.args), "zero_stage": stage}), plan=plan)

    def document(self, parameters: int) -> dict[str, Any]:
        """What `deepspeed.initialize` gets, for a model of so many parameters."""
        ours = {BATCH, MICRO, ACCUMULATION, "optimizer", "scheduler", "bfloat16", keys.ZERO, *keys.NO_EFFECT}
        document = {name: value for name, value in deepcopy(self.file).items() if name not in ours and given(value)}
        document |= {
            BATCH: self.plan.batch_size,
            MICRO: self.plan.rows_per_pass,
            ACCUMULATION: self.plan.accumulation_steps,
            "gradient_clipping": self.args.clip_norm,
            "optimizer": self._optimizer(),
            "zero_allow_untested_optimizer": True,  # torch's SGD: our tests hold its results against train_ddp's
            keys.ZERO: self._zero(parameters),
        }
        for name in SIXTEEN_BITS:
            found = section(self.file, name, *(["bfloat16"] if name == "bf16" else []))
            document[name] = {**found, "enabled": self.args.precision == name}
        return document

    def _optimizer(self) -> dict[str, Any]:
        args = self.args
        params = section(section(self.file, "optimizer"), "params")
        own = inspect.signature(
            keys.OPTIMIZERS[args.optimizer]
        ).parameters  # without DeepSpeed's own, such as torch_adam
        params = {name: value for name, value in params.items() if given(value) and name in own}
        params |= {"lr": args.learning_rate, "weight_decay": weight_decay(args)}
        if args.optimizer == "sgd":
            params |= {"momentum": args.momentum}
            return {"type": "SGD", "params": {"nesterov": args.momentum > 0, "fused": True, **params}}
        params["betas"] = [args.momentum, *params.get("betas", [0.0, args.beta2])[1:]]
        torch_adam = self.torch_adam or (self.stage == 0 and args.precision in SIXTEEN_BITS)
        mode = {"torch_adam": True, "fused": True} if torch_adam else {"torch_adam": False}
        return {"type": "Adam", "params": {**params, **mode, "adam_w_mode": args.optimizer == "adamw"}}

    def _zero(self, parameters: int) -> dict[str, Any]:
        """ZeRO's section; what the file leaves open is in proportion to the model.

        DeepSpeed's own sizes are for billions of parameters: in smaller models its buckets hold all gradients once
        more, and stage 3 keeps all parameters whole from the forward to the backward pass.
        """
        found = {name: value for name, value in section(self.file, keys.ZERO).items() if given(value)}
        zero: dict[str, Any] = {"reduce_bucket_size": _part(500_000_000, parameters)}
        if self.stage == 3:
            zero["stage3_prefetch_bucket_size"] = _part(50_000_000, parameters)
            zero["stage3_max_live_parameters"] = _part(1_000_000_000, parameters)
            zero["stage3_max_reuse_distance"] = _part(1_000_000_000, parameters)
        else:
            zero["allgather_bucket_size"] = _part(500_000_000, parameters)
        short = {name.removeprefix("stage3_"): name for name in zero}  # DeepSpeed takes both names, but not together
        zero |= {short.get(name, name): value for name, value in found.items() if name not in OFFLOAD["all"]}
        for name in OFFLOAD[self.args.offload]:
            offload = {key: value for key, value in section(found, name).items() if given(value) and key != "nvme_path"}
            zero[name] = {**offload, "device": "cpu", "pin_memory": machine.can_pin(offload)}
        return {**zero, "stage": self.stage}


def _part(largest: int, parameters: int) -> int:
    """An eighth of the model, within limits: sizes are in elements."""
    return min(largest, max(parameters // 8, 1_000_000))


def configure(args: argparse.Namespace, file: File, plan: BatchPlan, world: World) -> Configuration:
    """Bring together the file, the inputs and what this machine can do; every rank calls this.

    Raises:
        Refusal: with all that is wrong.
    """
    wrong = list(keys.problems(file))
    settled = settle(args, file)
    wrong += [] if wrong else contradictions(settled, file)
    decided = differences(args, settled)
    lacking = machine.adapt(settled, file, world)
    torch_adam, more = (True, []) if wrong else machine.adam(settled, file, world)
    lacking += more
    if args.on_unsupported == "fail":
        wrong += [f"{what} (on_unsupported=replace would take {instead})" for what, instead in lacking]
    if wrong:
        raise Refusal("DeepSpeed cannot be configured like this:" + "".join(f"\n  {line}." for line in wrong))
    for line in [decided, *(f"WARNING: {what}; replaced by {instead}" for what, instead in lacking)]:
        if line:
            world.note(line)
    return Configuration(settled, file, plan, torch_adam)
