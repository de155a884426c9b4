"""Early termination on made-up histories, by the examples of Azure ML's guide where it has any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allranks.local.sweep.termination import falls_behind, policy_applies


def policy(kind, *, interval=1, delay=0, **more):
    return {"type": kind, "evaluation_interval": interval, "delay_evaluation": delay, **more}


def test_a_policy_applies_at_every_multiple_of_its_interval_from_the_delay_on():
    every = policy("median_stopping", interval=2, delay=5)
    assert [n for n in range(1, 12) if policy_applies(every, n)] == [6, 8, 10]
    assert policy_applies(policy("bandit", interval=0), 1), "0 is what the SDK sends for 'not set'"


@pytest.mark.parametrize(("value", "behind"), [(0.67, False), (0.66, True)])
def test_bandit_with_the_guides_numbers(value, behind):
    """0.8 at interval 10 and a slack of 0.2: below 0.8 / 1.2 = 0.667 a trial is ended."""
    slack = policy("bandit", interval=10, slack_factor=0.2)
    assert bool(falls_behind(slack, "maximize", [value] * 10, [[0.5] * 9 + [0.8, 0.95]])) is behind


@pytest.mark.parametrize(
    ("goal", "kind", "mine", "behind"),
    [
        ("minimize", {"slack_factor": 0.5}, 1.49, False),
        ("minimize", {"slack_factor": 0.5}, 1.51, True),
        ("maximize", {"slack_amount": 0.2}, 0.81, False),
        ("maximize", {"slack_amount": 0.2}, 0.79, True),
        ("minimize", {"slack_amount": 0.2}, 1.19, False),
        ("minimize", {"slack_amount": 0.2}, 1.21, True),
    ],
)
def test_bandit_in_both_directions(goal, kind, mine, behind):
    why = falls_behind(policy("bandit", **kind), goal, [mine], [[1.0]])
    assert bool(why) is behind
    assert not behind or f"its best is {mine:g}" in why


@given(
    st.sampled_from(["maximize", "minimize"]),
    st.sampled_from([{"slack_factor": 0.1}, {"slack_amount": 0.1}]),
    st.lists(st.floats(-5, 5), min_size=1, max_size=6),
)
def test_the_best_of_all_is_never_ended(goal, kind, bests):
    best = max(bests) if goal == "maximize" else min(bests)
    for one in (policy("bandit", **kind), policy("truncation_selection", truncation_percentage=99)):
        assert not falls_behind(one, goal, [best], [[value] for value in bests])
    assert not falls_behind(policy("median_stopping"), goal, [best, best], [[value] * 2 for value in bests])


def test_a_trial_stands_for_the_best_that_it_logged():
    assert not falls_behind(policy("bandit", slack_amount=0.1), "maximize", [0.9, 0.1], [[0.5, 0.95]])


def test_median_stopping_compares_the_best_with_the_median_of_the_running_averages():
    others = [[0.2, 0.4], [0.6, 0.8], [0.7, 0.9]]  # averages 0.3, 0.7, 0.8
    assert falls_behind(policy("median_stopping"), "maximize", [0.4, 0.45], others)
    assert not falls_behind(policy("median_stopping"), "maximize", [0.1, 0.75], others)
    assert falls_behind(policy("median_stopping"), "minimize", [0.9, 0.85], others)


def test_truncation_ends_the_lowest_percent_rounded_down():
    last = policy("truncation_selection", truncation_percentage=40)
    others = [[0.2], [0.5], [0.9], [1.0]]
    assert falls_behind(last, "maximize", [0.1], others)
    assert falls_behind(last, "maximize", [0.3], others)
    assert not falls_behind(last, "maximize", [0.6], others)
    assert not falls_behind(policy("truncation_selection", truncation_percentage=19), "maximize", [0.1], others)
    assert not falls_behind(last, "maximize", [0.2], [[0.2]] * 4), "equal ones stay"


@pytest.mark.parametrize(
    "one",
    [
        policy("bandit", slack_factor=0.01),
        policy("median_stopping"),
        policy("truncation_selection", truncation_percentage=50),
    ],
)
def test_only_the_same_interval_is_compared(one):
    assert not falls_behind(one, "maximize", [0.1, 0.2], [[0.9], [0.8]]), "they have not come so far"
    assert not falls_behind(one, "maximize", [0.1, 0.2], [[0.1, 0.15, 0.9]]), "what came later does not count"
    assert not falls_behind(one, "maximize", [0.1], []), "alone"
