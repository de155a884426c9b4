"""What has to hold of a prediction whatever the numbers: limits, and what may only grow or only fall."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.planning.collectives import all_reduce_seconds, gather_seconds, ring_seconds, tree_seconds
from allranks.planning.links import NetworkLink, NodeNetwork
from allranks.planning.step import (
    GRADIENTS_SHARDED,
    REPLICATED,
    SHARDED,
    ModelExchange,
    StepWork,
    predict_step,
    straggler_share,
)

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


@given(works, models, networks, nodes)
def test_a_step_is_at_least_its_compute_and_its_parts_are_no_less_than_nothing(
    work: StepWork, model: ModelExchange, network: NodeNetwork, count: int
) -> None:
    step = predict_step(work, model, network, count)
    assert step.total >= work.compute_seconds
    assert 0 < step.efficiency <= 1
    assert min(step.exposed, step.contention, step.straggling, step.bubble) >= 0
    assert step.exposed <= step.exchange * (1 + 1e-9)


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
