"""The arithmetic of three kinds of parallelism: how many ranks share the data, each layer, and the layers."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import dataclass

from shared.arguments import one_voice
from shared.distributed import Refusal, detect


@dataclass(frozen=True, slots=True)
class Layout:
    """How many ways each part of the work is divided; the three multiplied are the number of ranks.

    Attributes:
        data_parallel: groups of ranks that compute on different rows; the parameters are sharded over them.
        tensor_parallel: ranks that share each layer; neighbours, so that they are on one node.
        pipeline_parallel: ranks that have the layers one after the other.
    """

    data_parallel: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel


def plan_layout(args: argparse.Namespace, world_size: int | None = None) -> Layout:
    """Divide the ranks that the launcher started by the degrees of the arguments.

    Args:
        args: the trainer's.
        world_size: number of ranks; None asks the launcher.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if the degrees do not divide the ranks
            or the model. All that is wrong is named.
    """
    there = world_size or detect().world_size
    each = args.tensor_parallel * args.pipeline_parallel
    layout = Layout(max(1, there // each), args.tensor_parallel, args.pipeline_parallel)
    problems = _problems(layout, there, args)
    if problems:
        with nullcontext() if world_size else one_voice():
            raise Refusal("\n".join(problems))
    return layout


def _problems(layout: Layout, there: int, args: argparse.Namespace) -> list[str]:
    tensor, pipeline, problems = layout.tensor_parallel, layout.pipeline_parallel, []
    if layout.world_size != there:
        problems.append(
            f"data_parallel({layout.data_parallel}) x tensor_parallel({tensor}) x pipeline_parallel({pipeline}) = "
            f"{layout.world_size} ranks wanted, {there} are there: start a multiple of {tensor * pipeline} ranks, or "
            "lower a degree."
        )
    for name in ("heads", "key_value_heads"):
        value = getattr(args, name)
        if value is not None and value % tensor:
            problems.append(f"{name} {value} does not divide by tensor_parallel({tensor}).")
    if args.layers % pipeline:
        problems.append(f"layers {args.layers} does not divide by pipeline_parallel({pipeline}).")
    if args.tie_embeddings == "true" and (tensor > 1 or pipeline > 1):
        problems.append(
            f"tie_embeddings true needs the embedding and the output layer whole and in one place, not under "
            f"tensor_parallel({tensor}) x pipeline_parallel({pipeline}): set it to false."
        )
    if pipeline > 1 and args.pipeline_schedule == "1f1b" and args.accumulation_steps < pipeline:
        problems.append(
            f"pipeline_schedule 1f1b needs at least as many accumulation_steps, which are its microbatches, as "
            f"stages: accumulation_steps({args.accumulation_steps}) < pipeline_parallel({pipeline}). Raise them, or "
            "choose gpipe."
        )
    return problems


def offloads(args: argparse.Namespace, device_type: str) -> bool:
    """Whether the sharded parameters lie in the host's memory between their uses; without a GPU they are there."""
    return bool(args.cpu_offload == "true") and device_type != "cpu"


def check_length(layout: Layout, sequence_length: int, feed_forward_width: int) -> None:
    """See that what only the dataset and the model say divides too.

    Raises:
        Refusal: if it does not.
    """
    sizes = {"sequence_length": sequence_length, "feed_forward_width": feed_forward_width}
    wrong = [
        f"{name} {value} does not divide by tensor_parallel({layout.tensor_parallel})."
        for name, value in sizes.items()
        if value % layout.tensor_parallel
    ]
    if wrong:
        raise Refusal("\n".join(wrong))
