"""Tensor parallelism with sequence parallelism: how the decoder's modules are divided over the ranks of a node.

Attention's and the perceptron's first projections are divided by columns and the last by rows, so that each needs one
exchange (Megatron-LM, Shoeybi et al. 2019); between them, in the norms and the residual stream, the sequence is divided
(Korthikanti et al. 2022), so that no activation is held twice.
"""

from __future__ import annotations

import warnings
from functools import partial

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from shared.models import DecoderModel
from shared.training.fsdp.mesh import TENSOR, RankMesh

_SEQUENCE = Shard(1)
"""Activations (N, L, width) between the layers: each rank has a part of L."""


def divide_layers(module: DecoderModel, mesh: RankMesh) -> None:
    """Divide the layers of a decoder, in place, over the tensor-parallel ranks."""
    ends: dict[str, ParallelStyle] = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=_SEQUENCE),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=_SEQUENCE, output_layouts=Replicate()),
    }
    # What it warns of is right: the logits are a view of what the ranks have put together. Nothing writes into them.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
    devices = mesh.devices[TENSOR]
    parallelize_module(module, devices, {name: how for name, how in ends.items() if getattr(module, name) is not None})
    for block in module.blocks.values():
        parallelize_module(block, devices, _of_block())
    if module.embed is not None:
        # A compiled block that is given the result of an exchange that is still under way gives it no gradient
        # (seen with torch 2.13: the embedding did not train). A copy waits for it.
        module.embed.register_forward_hook(lambda _module, _inputs, output: output.clone())


def _of_block() -> dict[str, ParallelStyle]:
    gathered = partial(PrepareModuleInput, input_layouts=(_SEQUENCE,), desired_input_layouts=(Replicate(),))
    return {
        "attention_norm": SequenceParallel(),
        "attention": gathered(),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.out": RowwiseParallel(output_layouts=_SEQUENCE),
        "feed_norm": SequenceParallel(),
        "feed": gathered(),
        "feed.gate": ColwiseParallel(),
        "feed.up": ColwiseParallel(),
        "feed.down": RowwiseParallel(output_layouts=_SEQUENCE),
    }
