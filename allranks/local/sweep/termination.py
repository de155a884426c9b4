"""Early termination: whether a trial has fallen too far behind the others to go on. Pure functions of what was logged.

Each time a trial logs the primary metric counts as one interval; a policy is applied at every multiple of its
``evaluation_interval`` from ``delay_evaluation`` on. Trials are compared at the same interval: those that have not come
so far are left out, and what others logged later does not count. A trial stands for the best value it has logged.
Source: Azure ML's guide "Hyperparameter tuning a model (v2)" and the reference of its early termination policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any


def policy_applies(policy: Mapping[str, Any], interval: int) -> bool:
    """Whether the policy is applied at an interval (from 1); an ``evaluation_interval`` of 0 means 1."""
    return bool(interval >= policy["delay_evaluation"] and interval % max(1, policy["evaluation_interval"]) == 0)


def falls_behind(
    policy: Mapping[str, Any], goal: str, history: Sequence[float], others: Sequence[Sequence[float]]
) -> str:
    """Why a trial is to be ended at the interval that it has reached; empty when it may go on.

    The policy is as ``spec.Sweep.early_termination`` holds it, the goal ``minimize`` or ``maximize``. The history is
    what the trial has logged, one value for each interval, at least one; ``others`` are the histories of all other
    trials, running, finished or ended early.
    """
    interval = len(history)
    if not policy_applies(policy, interval):
        return ""
    # From here on larger is better.
    sign = 1.0 if goal == "maximize" else -1.0
    mine = [sign * value for value in history]
    peers = [[sign * value for value in other[:interval]] for other in others if len(other) >= interval]
    if not peers:
        return ""
    if policy["type"] == "bandit":
        bar = _bandit_bar(policy, goal, max(max(values) for values in [mine, *peers]))
        behind, rule = max(mine) < bar, f"the slack ends at {sign * bar:.6g}"
    elif policy["type"] == "median_stopping":
        bar = median(fmean(values) for values in [mine, *peers])
        behind, rule = max(mine) < bar, f"the median of the running averages is {sign * bar:.6g}"
    else:
        behind = _among_the_last(max(mine), [max(values) for values in peers], policy["truncation_percentage"])
        rule = f"that is among the last {policy['truncation_percentage']:g} %"
    reached = f"ended early by {policy['type']} at interval {interval}: its best is {sign * max(mine):.6g}"
    return f"{reached}, {rule}" if behind else ""


def _bandit_bar(policy: Mapping[str, Any], goal: str, best: float) -> float:
    """What a trial must have reached, larger being better.

    With ``slack_factor`` f that is best / (1 + f) when maximizing and best * (1 + f) when minimizing. Below zero these
    would ask for more than the best, so the distance is taken from its size.
    """
    if policy.get("slack_amount"):
        return best - float(policy["slack_amount"])
    factor = float(policy["slack_factor"])
    return best - abs(best) * (factor / (1 + factor) if goal == "maximize" else factor)


def _among_the_last(mine: float, peers: Sequence[float], percentage: float) -> bool:
    """Whether a trial is one of the lowest so many percent of all, rounded down; equal ones are not told apart."""
    ended = int((len(peers) + 1) * percentage / 100)
    return sum(value <= mine for value in peers) < ended
