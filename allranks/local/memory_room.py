"""Whether the ranks of a step can be in this machine's memory at all."""

from __future__ import annotations

from allranks.errors import CannotRunHereError
from allranks.local.plan import RunPlan
from allranks.local.resources.memory_kills import MemoryLimit, find_memory_limit

RANK_BYTES = 100 * 10**6
"""What a rank has for itself at least: `import torch` takes 147 MB that no other process shares (torch 2.13, CPU)."""


def refuse_crowded(plan: RunPlan, limit: MemoryLimit | None = None) -> None:
    """Refuse a step whose ranks would fill the memory before one of them trains, and stall the whole machine.

    Raises:
        CannotRunHereError: with the number of ranks that there is room for.
    """
    room = limit or find_memory_limit()
    most = max(1, room.size // RANK_BYTES)
    for name, step in plan.steps.items():
        if step.distribution and step.ranks > most:
            raise CannotRunHereError(
                f"step {name}: {step.nodes:,} x {step.processes:,} ranks are {step.ranks:,} processes here, of at least"
                f" {RANK_BYTES / 1e6:.0f} MB each, and {room.owner} has {room.size / 1e9:.1f} GB.",
                f"At most {most:,} ranks, for example --scale {name}=1x{most};"
                " --dry-run shows the commands and variables of any scale.",
            )
