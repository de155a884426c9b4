"""Chooses values with scipy and optuna: a script that answers questions on standard input, one line of JSON each.

Every answer follows from its question alone, so that it does not matter which process gives it.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any


def answer_questions() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        question = json.loads(line)
        answer = sobol_points(question) if question["want"] == "sobol" else bayesian_values(question)
        print(json.dumps(answer), flush=True)


def sobol_points(question: dict[str, Any]) -> list[list[float]]:
    """The first ``count`` points of a scrambled Sobol sequence; more points begin with the same ones."""
    from scipy.stats import qmc

    warnings.filterwarnings("ignore", "The balance properties of Sobol'")  # any number of trials may be asked for
    sequence = qmc.Sobol(question["dimensions"], scramble=True, seed=question["seed"])
    points: list[list[float]] = sequence.random(question["count"]).tolist()
    return points


def bayesian_values(question: dict[str, Any]) -> dict[str, Any]:
    """The next trial's values from all trials before it, by a tree-structured Parzen estimator.

    The first quarter, at least two and at most ten, are random; those still running count as bad, so that the next
    ones are looked for elsewhere.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    past = question["past"]
    sampler = optuna.samplers.TPESampler(
        seed=question["seed"] * 1_000_003 + len(past),
        n_startup_trials=max(2, min(10, question["trials"] // 4)),
        multivariate=True,
        constant_liar=True,
    )
    study = optuna.create_study(direction=question["goal"], sampler=sampler)
    kinds = {name: _distribution(search) for name, search in question["space"].items()}
    for parameters, metric, finished in past:
        values = {name: _inward(question["space"][name], value) for name, value in parameters.items()}
        state = TrialState.RUNNING if not finished else TrialState.FAIL if metric is None else TrialState.COMPLETE
        known = metric if state == TrialState.COMPLETE else None
        study.add_trial(create_trial(params=values, distributions=kinds, value=known, state=state))
    found = study.ask(kinds).params
    return {name: _outward(search, found[name]) for name, search in question["space"].items()}


def _distribution(search: dict[str, Any]) -> Any:
    """The distribution; choices by their number, steps of ``q`` by their count, since neither has a type of its own."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if search["type"] == "choice":
        return CategoricalDistribution(range(len(search["values"])))
    if search["type"] == "quniform":
        return IntDistribution(round(search["min_value"] / search["q"]), round(search["max_value"] / search["q"]))
    return FloatDistribution(search["min_value"], search["max_value"])


def _inward(search: dict[str, Any], value: Any) -> Any:
    if search["type"] == "choice":
        return search["values"].index(value)
    return round(value / search["q"]) if search["type"] == "quniform" else value


def _outward(search: dict[str, Any], value: Any) -> Any:
    if search["type"] == "choice":
        return search["values"][value]
    if search["type"] == "quniform":
        step = search["q"]
        return value * int(step) if step == int(step) else float(f"{value * step:.12g}")
    return value


if __name__ == "__main__":
    answer_questions()
