"""What machines that break cost: how often to save, and how much of the time is left for steps that are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

NODE_HOURS_BETWEEN_FAILURES = 6335.0
"""Of one node of 8 GPUs. Llama 3 on 16,384 H100: 419 unexpected interruptions in 54 days, so 54 x 24 x 2048 / 419 hours
of a node for each (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.4)."""
RESTART_SECONDS = 300.0
"""From a failure to the next step: noticing, another node, start, reading the checkpoint. Assumed."""
SAVE_SECONDS = 5.0
"""That a training stands still for a checkpoint. Assumed; benchmarks/saving.py measures it here."""


@dataclass(frozen=True, slots=True)
class FailureRates:
    """What is known of failures.

    Attributes:
        node_hours: mean time between two failures of one node, in hours; infinite for machines that never fail.
        restart_seconds: until steps are made again.
        save_seconds: that the training stands still for a checkpoint.
    """

    node_hours: float = NODE_HOURS_BETWEEN_FAILURES
    restart_seconds: float = RESTART_SECONDS
    save_seconds: float = SAVE_SECONDS

    def seconds_between(self, nodes: int) -> float:
        """Between failures of any of so many nodes."""
        return self.node_hours * 3600 / nodes


def checkpoint_interval(save_seconds: float, seconds_between: float) -> float:
    """Seconds of training between two checkpoints at which least is lost.

    Young (1974): sqrt(2 C M). With Daly's next terms (2006, equation 37), which hold up to C = 2 M: from there on it is
    M. Infinite where nothing fails, and 0 where saving is free.
    """
    if math.isinf(seconds_between):
        return math.inf
    if save_seconds >= 2 * seconds_between:
        return seconds_between
    ratio = save_seconds / (2 * seconds_between)
    return math.sqrt(2 * save_seconds * seconds_between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def effective_share(rates: FailureRates, nodes: int, interval: float | None = None) -> float:
    """The part of the time in which steps are made that are kept, from 0 to 1 (goodput): Daly 2006, equation 20.

    ``interval`` is that between checkpoints in seconds, the best one where it is None.
    """
    mean = rates.seconds_between(nodes)
    best = checkpoint_interval(rates.save_seconds, mean)
    chosen = best if interval is None else interval
    if math.isinf(mean):
        return 1.0 if math.isinf(chosen) else chosen / (chosen + rates.save_seconds)
    if chosen <= 0:
        return math.exp(-rates.restart_seconds / mean)
    lost = math.exp(min(700.0, rates.restart_seconds / mean)) * mean
    segment = (chosen + rates.save_seconds) / mean
    return chosen / (lost * math.expm1(segment)) if segment < 700 else 0.0
