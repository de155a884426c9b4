"""How a model that is too large for one GPU is divided among several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from shared.settings.fields import Idle, Input


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSettings:
    """Of train_fsdp: degrees of the three kinds of parallelism."""

    tensor_parallel: Annotated[
        int,
        Input(
            "GPUs that share each layer; at most those of a node, since they exchange activations in every layer. The "
            "sequence is divided over them too. GPUs = data-parallel degree x tensor_parallel x pipeline_parallel.",
            least=1,
        ),
    ] = 1
    pipeline_parallel: Annotated[
        int, Input("GPUs that have the layers one after the other; the link between them may be slow.", least=1)
    ] = 1
    pipeline_schedule: Annotated[
        Literal["gpipe", "1f1b"],
        Input(
            "Order of the microbatches in a pipeline. gpipe runs all forward passes first; 1f1b alternates, so that "
            "fewer activations are kept, and needs as many accumulation_steps as stages at least."
        ),
    ] = "1f1b"
    reshard_after_forward: Annotated[
        bool,
        Input(
            "Give a block's parameters up after its forward pass and gather them again for the backward pass: least "
            "memory (ZeRO 3). false keeps them in between: faster, and more memory (ZeRO 2)."
        ),
    ] = True
    cpu_offload: Annotated[
        bool,
        Input(
            "Keep parameters, gradients and optimizer state in the host's memory and step there. Much slower; for "
            "models that fit nowhere else. Without a GPU this has no effect.",
            idle=(Idle("there is no GPU to offload from", lambda now: now.on_cpu),),
        ),
    ] = False

    def offloads_from(self, device_type: str) -> bool:
        """Whether the parts lie in the host's memory between their uses; without a GPU they are there."""
        return self.cpu_offload and device_type != "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingSettings:
    """Of train_transformers: who divides the model."""

    sharding: Annotated[
        Literal["none", "fsdp", "deepspeed"],
        Input(
            "How a model that is too large for one GPU is divided among all. fsdp: weights, gradients and the "
            "optimizer's states, by PyTorch. deepspeed: gradients and states, by ZeRO stage 2. The result does not "
            "change.",
            is_identity=True,
            idle=(
                Idle(
                    "one rank has nothing to divide",
                    lambda now: now.values["sharding"] == "fsdp" and now.world_size == 1,
                ),
            ),
        ),
    ] = "none"

    @property
    def is_divided(self) -> bool:
        """Whether no rank has all of the training."""
        return self.sharding != "none"
