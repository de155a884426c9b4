"""Steps that will wait for their network, found before they cost anything: for ``lint`` and ``submit``.

Said only of what can be known without a measurement: a language model of known settings, on GPUs of a size without
InfiniBand. Its compute is taken for longer than it will be, so that nothing is said of a step that may be well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from allranks.errors import Problem
from allranks.planning.links import network_of_size
from allranks.planning.step import StepTime, StepWork, predict_step
from allranks.planning.training_facts import TrainingFacts, training_steps
from allranks.sizes import VMSize, find_size
from allranks.spec import Component, Compute, Pipeline

PEAK_TERAFLOPS: Mapping[str, float] = MappingProxyType(
    {"K80": 4.4, "P40": 12.0, "P100": 9.5, "V100": 14.0, "T4": 8.1, "A10": 31.2, "A100": 19.5, "H100": 60.0}
)
"""Of one GPU in float32, by its maker's data sheet (H100: of its NVL and PCIe forms the faster one)."""
_HALF_PRECISION = 4.0
"""By how much 16 bits are faster at least on these GPUs, where they are at all."""
_SLOWEST_SHARE = 0.25
"""Of the peak that a training reaches at least: published ones of language models reach 0.3 to 0.6."""
_BAD_EFFICIENCY = 0.5
_SMALLEST_MODEL = 10_000_000
"""Weights below which nobody trains on several nodes for speed: examples and tests."""


def network_waits(document: Component | Pipeline, computes: Mapping[str, Compute] | None = None) -> list[Problem]:
    """Warn of each step of several nodes that computes for less than half of its time; empty for a component alone.

    ``computes`` are the clusters that are known, by name.
    """
    return list(_waits(document, computes)) if isinstance(document, Pipeline) else []


def _waits(pipeline: Pipeline, computes: Mapping[str, Compute] | None) -> Iterator[Problem]:
    for facts in training_steps(pipeline, computes):
        machines = facts.machines
        size = find_size(machines.size or "")
        nodes, ranks = machines.nodes, machines.processes
        if size is None or size.infiniband or not nodes or nodes < 2 or not ranks:
            continue
        predicted = _slow_step(facts, size, nodes, ranks)
        if predicted is None or predicted.efficiency >= _BAD_EFFICIENCY:
            continue
        spent = f"{nodes} nodes of {size.name} would compute for at most {predicted.efficiency:.0%} of each step"
        message = f"{spent}, and wait for {size.ethernet} Gb/s of Ethernet for the rest."
        hint = "Choose a size with InfiniBand, or a larger batch_size."
        yield machines.source.problem(f"jobs.{facts.step}.resources.instance_count", message, hint, "warning")


def _slow_step(facts: TrainingFacts, size: VMSize, nodes: int, ranks: int) -> StepTime | None:
    """A step of a GPU that is slower than any in use; None where something is not known."""
    network, peak = network_of_size(size, ranks), PEAK_TERAFLOPS.get(size.gpu)
    if network is None or peak is None or not facts.tokens or not facts.weights or facts.weights < _SMALLEST_MODEL:
        return None
    precision = str(facts.values.get("precision", ""))
    if precision not in ("fp32", "bf16", "fp16"):
        return None
    speed = peak * 1e12 * _SLOWEST_SHARE * (1.0 if precision == "fp32" else _HALF_PRECISION)
    # Six operations for each weight and token, and two more where activations are computed again.
    operations = 8 * facts.weights * facts.tokens * facts.batch_size / (nodes * ranks)
    groups, stages = facts.groups
    work = StepWork(operations / speed, facts.accumulation, stages, groups)
    return predict_step(work, facts.exchange(facts.weights), network, nodes)
