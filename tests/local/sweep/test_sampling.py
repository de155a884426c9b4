"""What the samplers choose: inside the space, on its grid, the same for the same seed, nothing twice."""

from __future__ import annotations

import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.errors import CannotRunHereError
from allranks.local.sweep import advisor
from allranks.local.sweep.advice import SamplingAdvice
from allranks.local.sweep.sampling import (
    OrderedSampler,
    PastTrial,
    distinct_parameters,
    grid_parameters,
    make_sampler,
    uniform_points,
)
from allranks.local.sweep.search import SweepSearch
from allranks.spec.search_space import value_at
from tests.waiting import wait_for

NUMBERS = st.floats(-50, 50).map(lambda number: round(number, 3))
STEPS = st.sampled_from([1, 2, 5, 16, 0.1, 0.25, 0.05])
PLACES = st.floats(0, 1)


def search(space, algorithm="random", **more):
    defaults = {"seed": 0, "log_base": math.e, "goal": "maximize", "metric": "m", "trials": 8, "at_once": 2}
    return SweepSearch(algorithm=algorithm, space=space, **{**defaults, **more})


def between(low, high):
    return {"min_value": min(low, high), "max_value": max(low, high)}


@given(NUMBERS, NUMBERS, STEPS, PLACES)
def test_ranges_are_kept_and_steps_hit(one, two, step, place):
    ends = between(one, two)
    low, high = ends["min_value"], ends["max_value"]
    assert low <= value_at({"type": "uniform", **ends}, place) <= high
    assert math.exp(low) <= value_at({"type": "loguniform", **ends}, place) <= math.exp(high)
    found = value_at({"type": "quniform", **ends, "q": step}, place)
    assert math.isclose(found / step, round(found / step), abs_tol=1e-9)
    assert low - step / 2 - 1e-9 <= found <= high + step / 2 + 1e-9
    assert isinstance(found, int) == (step == int(step))
    found = value_at({"type": "qloguniform", **ends, "q": step}, place)
    assert math.isclose(found / step, round(found / step), rel_tol=1e-9)


@given(st.integers(1, 100), PLACES)
def test_randint_and_choice(upper, place):
    assert 0 <= value_at({"type": "randint", "upper": upper}, place) < upper
    values = list("abc")
    assert value_at({"type": "choice", "values": values}, place) in values


def test_the_spread_is_that_of_the_distribution():
    places = [(index + 0.5) / 2000 for index in range(2000)]
    normal = [value_at({"type": "normal", "mu": 3, "sigma": 2}, place) for place in places]
    assert statistics.fmean(normal) == pytest.approx(3, abs=1e-6)
    assert statistics.stdev(normal) == pytest.approx(2, rel=0.01)
    logs = [math.log(value_at({"type": "loguniform", "min_value": -7, "max_value": -2}, place)) for place in places]
    assert statistics.fmean(logs) == pytest.approx(-4.5)
    assert value_at({"type": "loguniform", "min_value": -3, "max_value": -1}, 0.5, log_base=10) == pytest.approx(0.01)
    assert value_at({"type": "quniform", "min_value": 0, "max_value": 1, "q": 0.1}, 0.3) == 0.3


SPACE = {
    "rate": {"type": "uniform", "min_value": 0, "max_value": 1},
    "kind": {"type": "choice", "values": ["a", "b"]},
}


@given(st.integers(0, 2**32), st.integers(1, 20))
@settings(max_examples=20)
def test_the_same_seed_gives_the_same_trials_and_more_trials_begin_with_them(seed, count):
    drawn = [distinct_parameters(one := search(SPACE, seed=seed), uniform_points(one)) for _ in range(2)]
    first = [next(drawn[0]) for _ in range(count)]
    assert [next(drawn[1]) for _ in range(count + 5)][:count] == first


def test_nothing_is_tried_twice_and_a_small_space_ends():
    small = search({"a": {"type": "choice", "values": [1, 2, 3]}, "b": {"type": "randint", "upper": 2}})
    found = list(distinct_parameters(small, uniform_points(small)))
    assert sorted((one["a"], one["b"]) for one in found) == [(a, b) for a in (1, 2, 3) for b in (0, 1)]


def test_a_grid_is_every_combination_in_order():
    found = list(
        grid_parameters(search({"a": {"type": "choice", "values": [1, 2]}, "b": {"type": "choice", "values": "xy"}}))
    )
    assert found == [{"a": a, "b": b} for a in (1, 2) for b in "xy"]


def test_a_sampler_goes_on_after_the_trials_of_an_earlier_engine():
    sampler = OrderedSampler(iter([{"n": n} for n in range(4)]))
    past = [PastTrial({"n": n}, None, is_finished=True) for n in range(3)]
    assert sampler.next(past) == {"n": 3}
    assert not sampler.exhausted
    assert sampler.next([*past, PastTrial({"n": 3}, None, is_finished=True)]) is None
    assert sampler.exhausted


def test_sobol_points_are_those_of_the_seed_and_spread_evenly():
    ask = {"want": "sobol", "seed": 3, "dimensions": 2, "count": 16}
    points = advisor.sobol_points(ask)
    assert points == advisor.sobol_points(ask) == advisor.sobol_points({**ask, "count": 40})[:16]
    assert points != advisor.sobol_points({**ask, "seed": 4})
    for dimension in range(2):
        assert sorted(int(point[dimension] * 16) for point in points) == list(range(16)), "one in each sixteenth"


BAYESIAN = {
    "rate": {"type": "uniform", "min_value": -1, "max_value": 1},
    "size": {"type": "quniform", "min_value": 16, "max_value": 64, "q": 16},
    "share": {"type": "quniform", "min_value": 0, "max_value": 1, "q": 0.1},
    "kind": {"type": "choice", "values": ["a", 2, True]},
}


def test_bayesian_search_finds_what_random_search_need_not():
    past, question = [], {"want": "bayesian", "seed": 0, "space": BAYESIAN, "goal": "minimize", "trials": 40}
    for number in range(40):
        found = advisor.bayesian_values({**question, "past": past})
        assert found == advisor.bayesian_values({**question, "past": past}), "it follows from what is past"
        assert json.loads(json.dumps(found)) == found
        assert -1 <= found["rate"] <= 1
        assert found["size"] in {16, 32, 48, 64}
        assert round(found["share"] * 10) / 10 == found["share"]
        assert found["kind"] in ["a", 2, True]
        loss = (found["rate"] - 0.3) ** 2 + abs(found["size"] - 48) / 100
        past.append([found, None if number == 5 else loss, number != 6])
    best = min(loss for _, loss, over in past if over and loss is not None)
    assert best < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sobol", "bayesian"])
def test_the_libraries_answer_from_a_process_of_their_own(algorithm):
    sampler = make_sampler(search({"rate": BAYESIAN["rate"]}, algorithm))
    try:
        found = wait_for(lambda: sampler.next([]))
        assert -1 <= found["rate"] <= 1
        assert wait_for(lambda: sampler.next([PastTrial(found, 0.5, is_finished=True)])) != found
    finally:
        sampler.close()


@pytest.mark.slow
def test_an_advisor_that_dies_is_an_error_and_not_a_wait():
    advice = SamplingAdvice()
    question = {"want": "sobol"}  # half a question: it ends with a traceback
    try:
        with pytest.raises(CannotRunHereError, match="has ended"):
            wait_for(lambda: advice.ask(question))
    finally:
        advice.close()
