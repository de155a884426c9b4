"""What has to hold of a prediction whatever the numbers: limits, and what may only grow or only fall."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.planning import (
    ClusterPlan,
    FailureRates,
    ModelExchange,
    NetworkLink,
    NodeNetwork,
    StepWork,
    all_reduce_seconds,
    checkpoint_interval,
    effective_share,
    forecast_nodes,
    gather_seconds,
    predict_step,
)
from allranks.planning.collectives import ring_seconds, tree_seconds
from allranks.planning.forecast import counted_nodes
from allranks.planning.step import GRADIENTS_SHARDED, REPLICATED, SHARDED, straggler_share

rates = st.floats(1e6, 1e12)
networks = st.builds(
    NodeNetwork,
    st.integers(1, 16),
    st.builds(NetworkLink, rates, st.floats(0, 1e-4)),
    st.builds(NetworkLink, rates, st.floats(0, 1e-3)),
)
sizes = st.floats(1, 1e12)
nodes = st.integers(1, 1024)
models = st.builds(
    ModelExchange,
    sizes,
    sizes,
    st.sampled_from([REPLICATED, SHARDED, GRADIENTS_SHARDED]),
    st.integers(1, 100),
    st.floats(1e6, 1e9),
    st.booleans(),
)
works = st.builds(StepWork, st.floats(1e-4, 1e3), st.integers(1, 64))


@given(networks, sizes)
def test_one_rank_exchanges_nothing(network: NodeNetwork, size: float) -> None:
    alone = replace(network, ranks_per_node=1)
    assert all_reduce_seconds(alone, 1, size) == gather_seconds(alone, 1, size) == 0


@given(works, models, networks)
def test_one_rank_only_computes(work: StepWork, model: ModelExchange, network: NodeNetwork) -> None:
    step = predict_step(work, model, replace(network, ranks_per_node=1), 1)
    assert step.total == step.compute == work.compute_seconds
    assert step.efficiency == 1


@given(works, models, st.integers(1, 16), nodes)
def test_without_bytes_or_latency_stragglers_are_left(
    work: StepWork, model: ModelExchange, ranks: int, count: int
) -> None:
    free = NetworkLink(math.inf, 0.0)
    step = predict_step(work, model, NodeNetwork(ranks, free, free), count)
    expected = work.compute_seconds * (1 + straggler_share(count * ranks))
    # each exchange still has to be started: 8.4 microseconds, and no more of them than buckets or units
    most = 1200 * 3 * 64 * 8.4e-6
    assert expected <= step.total * (1 + 1e-9)
    assert step.total <= expected * (1 + 1e-9) + most


@given(networks, sizes, st.floats(1, 10), nodes)
def test_more_bytes_never_take_less(network: NodeNetwork, size: float, factor: float, count: int) -> None:
    for seconds in (all_reduce_seconds, gather_seconds):
        assert seconds(network, count, size * factor) >= seconds(network, count, size)


@given(networks, sizes, st.integers(2, 512))
def test_more_nodes_never_take_less(network: NodeNetwork, size: float, count: int) -> None:
    for seconds in (all_reduce_seconds, gather_seconds):
        assert seconds(network, 2 * count, size) >= seconds(network, count, size) * (1 - 1e-12)


@given(works, models, networks, nodes, st.floats(1, 100))
def test_a_faster_link_never_makes_a_step_longer(
    work: StepWork, model: ModelExchange, network: NodeNetwork, count: int, factor: float
) -> None:
    faster = replace(network, remote=NetworkLink(network.remote.rate * factor, network.remote.latency / factor))
    slow, fast = predict_step(work, model, network, count), predict_step(work, model, faster, count)
    assert fast.total <= slow.total * (1 + 1e-9)


@given(works, models, networks, nodes)
def test_a_step_is_at_least_its_compute_and_its_parts_are_no_less_than_nothing(
    work: StepWork, model: ModelExchange, network: NodeNetwork, count: int
) -> None:
    step = predict_step(work, model, network, count)
    assert step.total >= work.compute_seconds
    assert 0 < step.efficiency <= 1
    assert min(step.exposed, step.contention, step.straggling, step.bubble) >= 0
    assert step.exposed <= step.exchange * (1 + 1e-9)


@given(works, models, networks, nodes)
def test_hiding_the_exchange_never_costs_more_than_not(
    work: StepWork, model: ModelExchange, network: NodeNetwork, count: int
) -> None:
    whole = replace(model, division=REPLICATED)
    hidden = predict_step(work, replace(whole, overlaps=True), network, count)
    plain = predict_step(work, replace(whole, overlaps=False), network, count)
    assert hidden.exposed <= plain.exposed * (1 + 1e-9)


def test_a_large_message_takes_the_ring_and_a_small_one_the_tree() -> None:
    network = NodeNetwork(8, NetworkLink(240e9, 3.4e-6), NetworkLink(184e9, 14e-6))
    assert tree_seconds(network, 64, 1000) < ring_seconds(network, 64, 1000)
    assert ring_seconds(network, 4, 10e9) < tree_seconds(network, 4, 10e9)


def test_a_ring_approaches_its_textbook_limit() -> None:
    network = NodeNetwork(1, NetworkLink(1e9, 0), NetworkLink(1e9, 0))
    assert ring_seconds(network, 4, 1e9) == pytest.approx(2 * 3 / 4, rel=1e-4)
    assert gather_seconds(network, 4, 1e9) == pytest.approx(3 / 4, rel=1e-4)


def test_a_pipeline_has_the_bubble_of_its_stages() -> None:
    network = NodeNetwork(8, NetworkLink(240e9, 3e-6), NetworkLink(184e9, 14e-6))
    step = predict_step(StepWork(10.0, 48, 8, 8), ModelExchange(350e9, overlaps=False), network, 128)
    assert step.bubble == pytest.approx(10.0 * 7 / 48)


@given(st.floats(0, 1e4), st.floats(1, 1e9))
def test_the_interval_grows_with_the_time_between_failures(save: float, mean: float) -> None:
    assert checkpoint_interval(save, 4 * mean) >= checkpoint_interval(save, mean)


def test_young_s_interval() -> None:
    assert checkpoint_interval(1.0, 1e6) == pytest.approx(math.sqrt(2e6), rel=0.01)
    assert checkpoint_interval(10.0, math.inf) == math.inf


@given(st.floats(1, 1e5), st.floats(0, 3600), st.floats(0.01, 600), st.integers(1, 512))
def test_goodput_is_a_share_that_falls_with_nodes(hours: float, restart: float, save: float, count: int) -> None:
    found = FailureRates(hours, restart, save)
    one, more = effective_share(found, count), effective_share(found, 2 * count)
    assert 0 <= more <= one * (1 + 1e-9) <= 1 + 1e-9


@given(st.floats(100, 1e5), st.floats(1, 600), st.floats(0.2, 5))
def test_no_other_interval_is_better_by_much(hours: float, save: float, factor: float) -> None:
    found = FailureRates(hours, 60.0, save)
    best = checkpoint_interval(save, found.seconds_between(8))
    assert effective_share(found, 8, best * factor) <= effective_share(found, 8) * 1.001


def test_machines_that_never_fail_lose_nothing() -> None:
    assert effective_share(FailureRates(math.inf), 1024) == 1


def plan(**changes: Any) -> ClusterPlan:
    network = NodeNetwork(8, NetworkLink(240e9, 3.4e-6), NetworkLink(184e9, 14e-6))
    return replace(ClusterPlan(0.001, 4096, ModelExchange(100e6), network, samples=1e6, price=10.0), **changes)


def test_a_fixed_batch_is_divided_and_a_growing_one_is_not() -> None:
    fixed, growing = forecast_nodes(plan(), [1, 4]), forecast_nodes(plan(grows=True), [1, 4])
    assert [one.batch_size for one in fixed] == [4096, 4096]
    assert [one.batch_size for one in growing] == [4096, 16384]
    assert fixed[1].step.compute == pytest.approx(fixed[0].step.compute / 4)
    assert growing[1].step.compute == growing[0].step.compute


def test_cost_is_nodes_by_time_by_price() -> None:
    (found,) = forecast_nodes(plan(failures=FailureRates(math.inf)), [4])
    assert found.seconds == pytest.approx(1e6 / 4096 * found.step.total)
    assert found.seconds is not None
    assert found.cost == pytest.approx(10 * 4 * found.seconds / 3600)


def test_more_ranks_than_rows_is_not_possible() -> None:
    assert [one.is_possible for one in forecast_nodes(plan(batch_size=16), [1, 2, 4])] == [True, True, False]


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_nodes_are_doubled_up_to_the_last(most: int, counts: list[int]) -> None:
    assert counted_nodes(most) == counts


def test_a_link_without_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        NetworkLink(0.0, 0.0)
