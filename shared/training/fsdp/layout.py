"""The arithmetic of three kinds of parallelism: how many ranks share the data, each layer, and the layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from shared.distributed import Refusal, detect
from shared.settings.command_line import refusing_once
from shared.settings.network import DecoderSizes
from shared.settings.sharding import ParallelSettings


@dataclass(frozen=True, slots=True)
class RankLayout:
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

    @property
    def stages(self) -> list[range]:
        """The ranks of each of the pipeline's stages: they compute alike."""
        size = self.data_parallel * self.tensor_parallel
        return [range(first, first + size) for first in range(0, self.world_size, size)]


def plan_layout(
    parallel: ParallelSettings, sizes: DecoderSizes, accumulation_steps: int, world_size: int | None = None
) -> RankLayout:
    """Divide the ranks, as many as the launcher started if `world_size` is None, by the degrees of parallelism.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if the degrees do not divide the ranks
            or the model. All that is wrong is named.
    """
    there = world_size or detect().world_size
    each = parallel.tensor_parallel * parallel.pipeline_parallel
    layout = RankLayout(max(1, there // each), parallel.tensor_parallel, parallel.pipeline_parallel)
    problems = list(_problems(layout, there, parallel, sizes, accumulation_steps))
    if problems:
        with nullcontext() if world_size else refusing_once():
            raise Refusal("\n".join(problems))
    return layout


def _problems(
    layout: RankLayout, there: int, parallel: ParallelSettings, sizes: DecoderSizes, accumulation_steps: int
) -> Iterator[str]:
    tensor, pipeline = layout.tensor_parallel, layout.pipeline_parallel
    if layout.world_size != there:
        yield (
            f"data_parallel({layout.data_parallel}) x tensor_parallel({tensor}) x pipeline_parallel({pipeline}) = "
            f"{layout.world_size} ranks wanted, {there} are there: start a multiple of {tensor * pipeline} ranks, or "
            "lower a degree."
        )
    yield from _not_divisible(layout, heads=sizes.heads, key_value_heads=sizes.key_value_heads or 0)
    if sizes.layers % pipeline:
        yield f"layers {sizes.layers} does not divide by pipeline_parallel({pipeline})."
    if sizes.tie_embeddings and (tensor > 1 or pipeline > 1):
        yield (
            f"tie_embeddings true needs the embedding and the output layer whole and in one place, not under "
            f"tensor_parallel({tensor}) x pipeline_parallel({pipeline}): set it to false."
        )
    if pipeline > 1 and parallel.pipeline_schedule == "1f1b" and accumulation_steps < pipeline:
        yield (
            f"pipeline_schedule 1f1b needs at least as many accumulation_steps, which are its microbatches, as "
            f"stages: accumulation_steps({accumulation_steps}) < pipeline_parallel({pipeline}). Raise them, or "
            "choose gpipe."
        )


def _not_divisible(layout: RankLayout, **sizes: int) -> Iterator[str]:
    for name, value in sizes.items():
        if value % layout.tensor_parallel:
            yield f"{name} {value} does not divide by tensor_parallel({layout.tensor_parallel})."


def check_divisible(layout: RankLayout, sequence_length: int, feed_forward_width: int) -> None:
    """See that what only the dataset and the model say divides by `tensor_parallel` too.

    Raises:
        Refusal: if it does not.
    """
    wrong = list(_not_divisible(layout, sequence_length=sequence_length, feed_forward_width=feed_forward_width))
    if wrong:
        raise Refusal("\n".join(wrong))
