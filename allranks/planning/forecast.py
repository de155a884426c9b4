"""All that is predicted for a number of nodes: the step, the whole training, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from allranks.planning.failures import FailureRates, checkpoint_interval, effective_share
from allranks.planning.links import NodeNetwork
from allranks.planning.step import ModelExchange, StepTime, StepWork, predict_step

MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What is asked: a training, and the machines.

    Attributes:
        sample_seconds: that one rank computes for one sample, forwards, backwards and the optimizer's share.
        batch_size: samples in one step of all ranks together.
        grows: whether the batch grows with the ranks, being that of one node: weak scaling.
        accumulation: micro-batches of a rank in a step.
        model_groups: ranks that share each layer.
        pipeline_stages: ranks that have the layers one after the other.
        samples: of the whole training, all epochs; None where that is not known.
        price: of a node for an hour; None where nobody says.
    """

    sample_seconds: float
    batch_size: int
    model: ModelExchange
    network: NodeNetwork
    grows: bool = False
    accumulation: int = 1
    model_groups: int = 1
    pipeline_stages: int = 1
    samples: float | None = None
    price: float | None = None
    failures: FailureRates = field(default_factory=FailureRates)

    def batch_of(self, nodes: int) -> int:
        """Samples in one step on so many nodes."""
        return self.batch_size * (nodes if self.grows else 1)


@dataclass(frozen=True, slots=True)
class NodeForecast:
    """What is predicted for a number of nodes.

    Attributes:
        batch_size: samples of a step, all ranks.
        is_possible: whether there are ranks for all of the model, and a sample for each in each micro-batch; where not,
            what is below says nothing.
        step: seconds, by what they go into.
        goodput: the part of the time in which steps are made that are kept.
        save_every: seconds between checkpoints.
        seconds: of the whole training, failures included; None where its samples are not known.
        cost: of all nodes for that time.
    """

    nodes: int
    ranks: int
    batch_size: int
    is_possible: bool
    step: StepTime
    goodput: float
    save_every: float
    seconds: float | None
    cost: float | None

    @property
    def samples_per_second(self) -> float:
        """Of all ranks, without failures."""
        return self.batch_size / self.step.total

    def document(self) -> dict[str, Any]:
        """As JSON."""
        step = self.step
        return {
            "nodes": self.nodes,
            "ranks": self.ranks,
            "batch_size": self.batch_size,
            "possible": self.is_possible,
            "step_seconds": step.total,
            "compute_seconds": step.compute,
            "exchange_seconds": step.exchange,
            "exposed_seconds": step.exposed,
            "contention_seconds": step.contention,
            "straggling_seconds": step.straggling,
            "bubble_seconds": step.bubble,
            "efficiency": step.efficiency,
            "samples_per_second": self.samples_per_second,
            "goodput": self.goodput,
            "checkpoint_every_seconds": self.save_every if self.save_every != float("inf") else None,
            "seconds": self.seconds,
            "cost": self.cost,
        }


def forecast_nodes(plan: ClusterPlan, nodes: Iterable[int]) -> list[NodeForecast]:
    """Predict each of these numbers of nodes, from 1."""
    return [_forecast(plan, count) for count in nodes]


def _forecast(plan: ClusterPlan, nodes: int) -> NodeForecast:
    ranks = nodes * plan.network.ranks_per_node
    batch = plan.batch_of(nodes)
    seconds_of_rank = batch / ranks * plan.sample_seconds
    work = StepWork(seconds_of_rank, plan.accumulation, plan.pipeline_stages, plan.model_groups)
    replicas = ranks / plan.pipeline_stages / plan.model_groups
    step = predict_step(work, plan.model, plan.network, nodes)
    rates = plan.failures
    goodput = effective_share(rates, nodes)
    seconds = None if plan.samples is None else plan.samples / batch * step.total / goodput
    cost = None if plan.price is None or seconds is None else plan.price * nodes * seconds / 3600
    every = checkpoint_interval(rates.save_seconds, rates.seconds_between(nodes))
    return NodeForecast(
        nodes,
        ranks,
        batch,
        replicas >= 1 and batch >= replicas * plan.accumulation,
        step,
        goodput,
        every,
        seconds,
        cost,
    )


def counted_nodes(most: int) -> list[int]:
    """1, 2, 4 and so on, up to and with ``most``."""
    doubled = [2**power for power in range(most.bit_length()) if 2**power < most]
    return [*doubled, most]


def without_network(plan: ClusterPlan) -> ClusterPlan:
    """The same training with nothing to exchange: what is left is computing and stragglers."""
    return replace(plan, model=replace(plan.model, gradient_bytes=0.0, weight_bytes=0.0))
