"""A step that searches: what it adds to its trial, for which goal, and when a trial or the sweep ends.

The rules are those of Azure ML's YAML reference for sweep jobs and of its guide to tuning: grid sampling takes choices
only, Bayesian sampling takes choice, uniform and quniform, and there are at most 1,000 trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.spec import schema
from allranks.spec.model import Step, Sweep
from allranks.spec.section import Section, a_or_an, shown_value
from allranks.spec.steps.kind import StepReader
from allranks.spec.suggest import did_you_mean
from allranks.spec.value_kinds import snake_case

_ALGORITHMS = ("random", "grid", "bayesian")
_GOALS = ("minimize", "maximize")
_RULES = ("random", "sobol")
_SEARCHABLE = {"grid": ("choice",), "bayesian": ("choice", "uniform", "quniform")}
MOST_TRIALS = 1000
_TRIAL_COUNTS = ("max_total_trials", "max_concurrent_trials")
_INTERVALS = ("evaluation_interval", "delay_evaluation")


def _read_search(section: Section) -> Sweep:
    algorithm, seed, log_base = _algorithm(section)
    limits = section.mapping("limits")
    limits.known(schema.SWEEP_LIMITS, "a sweep's limits")
    found = {key: _limit(limits, key) for key in limits}
    if "max_total_trials" not in limits:
        limits.wrong("", "states no max_total_trials.", "Write limits: {max_total_trials: 8}.")
    return Sweep(
        algorithm,
        MappingProxyType(_space(section.mapping("search_space"), algorithm)),
        _objective(section),
        MappingProxyType({key: value for key, value in found.items() if value is not None}),
        _early_termination(section.mapping("early_termination")),
        seed,
        log_base,
    )


def _algorithm(section: Section) -> tuple[str, int | None, float]:
    """The algorithm (``sobol`` for random sampling with that rule), its seed and the base of its logarithms."""
    written = section.data.get("sampling_algorithm")
    settings = section.mapping("sampling_algorithm") if isinstance(written, dict) else None
    name = settings.text("type") if settings else written
    if name is None:
        section.wrong("", "states no sampling_algorithm.", "Write sampling_algorithm: random, grid or bayesian.")
        return "random", None, math.e
    name = snake_case(str(name))
    if name not in _ALGORITHMS:
        hint = did_you_mean(name, _ALGORITHMS, "algorithms")
        section.wrong("sampling_algorithm", f"{shown_value(name)} is no sampling algorithm.", hint)
        return "random", None, math.e
    if settings is None:
        return name, None, math.e
    keys = {"type", "seed", "rule", "logbase"} if name == "random" else {"type"}
    settings.known(keys, f"{name} sampling")
    seed = settings.whole("seed")
    rule = settings.choice("rule", _RULES, "rules", snake_case) or "random"
    return (rule if name == "random" else name), (seed if isinstance(seed, int) else None), _log_base(settings)


def _log_base(settings: Section) -> float:
    if settings.data.get("logbase") in (None, "e"):
        return math.e
    base = settings.number("logbase")
    if base is not None and (base <= 0 or base == 1):
        settings.wrong("logbase", f"{shown_value(base)} is no base of a logarithm.", "Write e, or a number above 1.")
        return math.e
    return math.e if base is None else base


def _limit(limits: Section, key: str) -> int | str | None:
    value = limits.whole(key)
    if not isinstance(value, int):
        return value
    if value < 1:
        limits.wrong(key, f"{value} is below the minimum of 1.")
    elif value > MOST_TRIALS and key in _TRIAL_COUNTS:
        limits.wrong(key, f"{value} is above the maximum of {MOST_TRIALS}.")
    return value


def _objective(section: Section) -> tuple[str, str]:
    inner = section.mapping("objective")
    inner.known(schema.OBJECTIVE_KEYS, "an objective")
    goal, metric = snake_case(inner.text("goal")), inner.text("primary_metric")
    if not goal:
        inner.wrong("", "states no goal: minimize or maximize.")
    elif goal not in _GOALS:
        inner.wrong("goal", f"'{goal}' is neither minimize nor maximize.", did_you_mean(goal, _GOALS, "goals"))
    if not metric:
        inner.wrong("", "states no primary_metric.", "Write the name of a metric that the trial logs.")
    return goal or "minimize", metric


def _space(section: Section, algorithm: str) -> dict[str, Mapping[str, object]]:
    if not section.data:
        section.wrong("", "is empty: a sweep searches at least one input.", "Write search_space: {INPUT: {type: …}}.")
    found: dict[str, Mapping[str, object]] = {}
    for name in section:
        inner = section.mapping(name)
        type_ = inner.text("type").lower()
        if type_ not in schema.SEARCH_KEYS:
            hint = did_you_mean(type_, schema.SEARCH_KEYS, "types")
            inner.wrong("type" if type_ else "", f"'{type_}' is no type of a search space.", hint)
            continue
        inner.known({"type", *schema.SEARCH_KEYS[type_]}, f"a search of type {type_}")
        for key in schema.SEARCH_KEYS[type_]:
            if key not in inner:
                inner.wrong("", f"a search of type {type_} needs '{key}'.")
        if type_ not in _SEARCHABLE.get(algorithm, schema.SEARCH_KEYS):
            kinds = ", ".join(_SEARCHABLE[algorithm])
            message = f"{algorithm} sampling searches {kinds} only, and this is {a_or_an(type_)}."
            inner.wrong("type", message, "Use random sampling, or another type.")
        found[name] = MappingProxyType({**_numbers(inner, schema.SEARCH_KEYS[type_]), "type": type_})
    return found


def _numbers(search: Section, keys: tuple[str, ...]) -> dict[str, object]:
    """The values of a search, each of which but ``values`` is a number in its range."""
    if keys == ("values",):
        if not search.items("values"):
            search.wrong("", "offers no values.", "Write values: [a, b].")
        return {"values": search.items("values")}
    found = {key: search.number(key) for key in keys}
    for key, least in (("q", 0), ("sigma", 0), ("upper", 1)):
        value = found.get(key)
        if value is not None and (value < least or (key == "q" and value == 0)):
            rule = "not above 0" if key == "q" else f"below the minimum of {least}"
            search.wrong(key, f"{shown_value(value)} is {rule}.")
    upper = found.get("upper")
    if upper is not None and upper != int(upper):
        search.wrong("upper", f"{shown_value(upper)} is not a whole number.")
    return {key: value for key, value in found.items() if value is not None}


def _early_termination(section: Section) -> Mapping[str, object] | None:
    if not section.data:
        return None
    type_ = snake_case(section.text("type"))
    if type_ not in schema.POLICY_KEYS:
        hint = did_you_mean(type_, schema.POLICY_KEYS, "policies")
        section.wrong("type" if type_ else "", f"'{type_}' is no policy of early termination.", hint)
        return None
    keys = {"type", *_INTERVALS, *schema.POLICY_KEYS[type_]}
    section.known(keys, f"{a_or_an(type_)} policy", unchecked=keys)
    found: dict[str, object] = {"type": type_, **{key: _interval(section, key) for key in _INTERVALS}}
    # The SDK writes 0 for what was not set.
    found |= {key: value for key in schema.POLICY_KEYS[type_] if (value := section.number(key))}
    if type_ == "bandit":
        _check_slack(section, [key for key in schema.POLICY_KEYS[type_] if key in found])
    elif type_ == "truncation_selection":
        percentage = section.number("truncation_percentage")
        if percentage is None or not 1 <= percentage <= 99:
            rule = "is not from 1 to 99: the percentage of trials that are ended each time."
            place = "truncation_percentage" if "truncation_percentage" in section else ""
            section.wrong(place, f"{shown_value(percentage)} {rule}")
    return MappingProxyType(found)


def _check_slack(section: Section, given: list[str]) -> None:
    for key in given:
        number = section.number(key)
        if number is not None and number < 0:
            section.wrong(key, f"{shown_value(number)} is below the minimum of 0.")
    if len(given) != 1:
        message = "states neither slack_factor nor slack_amount." if not given else "states two slacks."
        section.wrong("", message, "Write one of slack_factor, such as 0.1, and slack_amount.")


def _interval(section: Section, key: str) -> int:
    value = section.whole(key)
    if isinstance(value, int) and value < 0:
        section.wrong(key, f"{value} is below the minimum of 0.")
    return value if isinstance(value, int) else 0


class _SweepReader(StepReader):
    def with_limits(self, step: Step, section: Section) -> Step:
        return replace(step, sweep=_read_search(section)) if step.has_component else step


SWEEP_READER = _SweepReader(
    name="sweep",
    keys=schema.SWEEP_STEP,
    noun="a sweep step",
    ignored=dict.fromkeys(schema.COMPONENT_STEP, "set it in the trial."),
    component_key="trial",
    takes_step_kind=False,
)
