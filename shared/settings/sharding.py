"""How a model that is too large for one GPU is divided among several."""

from __future__ import annotations

from typing import Literal

from shared.settings.fields import Idle, input_port, settings_class


@settings_class
class ParallelSettings:
    """Of train_fsdp: degrees of the three kinds of parallelism."""

    tensor_parallel: int = input_port(
        "GPUs that share each layer; at most those of a node, since they exchange activations in every layer. The "
        "sequence is divided over them too. GPUs = data-parallel degree x tensor_parallel x pipeline_parallel.",
        default=1,
        least=1,
    )
    pipeline_parallel: int = input_port(
        "GPUs that have the layers one after the other; the link between them may be slow.", default=1, least=1
    )
    pipeline_schedule: Literal["gpipe", "1f1b"] = input_port(
        "Order of the microbatches in a pipeline. gpipe runs all forward passes first; 1f1b alternates, so that fewer "
        "activations are kept, and needs as many accumulation_steps as stages at least.",
        default="1f1b",
    )
    reshard_after_forward: bool = input_port(
        "Give a block's parameters up after its forward pass and gather them again for the backward pass: least memory "
        "(ZeRO 3). false keeps them in between: faster, and more memory (ZeRO 2).",
        default=True,
    )


@settings_class
class ShardingSettings:
    """Of train_transformers: who divides the model."""

    sharding: Literal["none", "fsdp", "deepspeed"] = input_port(
        "How a model that is too large for one GPU is divided among all. fsdp: weights, gradients and the optimizer's "
        "states, by PyTorch. deepspeed: gradients and states, by ZeRO stage 2. The result does not change.",
        default="none",
        is_identity=True,
        idle=(
            Idle(
                "one rank has nothing to divide",
                lambda now: now.values["sharding"] == "fsdp" and now.world_size == 1,
            ),
        ),
    )

    @property
    def is_divided(self) -> bool:
        """Whether no rank has all of the training."""
        return self.sharding != "none"
