"""A sweep's search with every count known, the sweep as it is planned, and the step that a trial runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from allranks.local.plan import PlannedStep
from allranks.spec import find_references, literal_text, replace_references
from allranks.spec.model import Literal

TrialParameters: TypeAlias = Mapping[str, Literal]
"""The values that one trial has for the names of the search space."""


@dataclass(frozen=True, slots=True)
class SweepSearch:
    """What a sweep tries, and when it ends; what is not said here is as ``spec.Sweep`` holds it.

    Attributes:
        seed: 0 where the YAML is silent, so that a second run tries the same values and finds the finished trials.
        metric: the primary metric's name.
        trials: at most so many, and of these ``at_once`` at a time.
        timeout: seconds for the whole sweep, and ``trial_timeout`` for each trial, or None.
        policy: of early termination, or None.
    """

    algorithm: str
    seed: int
    log_base: float
    space: Mapping[str, Mapping[str, Any]]
    goal: str
    metric: str
    trials: int
    at_once: int
    timeout: float | None = None
    trial_timeout: float | None = None
    policy: Mapping[str, Any] | None = None

    def identity(self) -> dict[str, Any]:
        """What makes two searches the same: all that decides which trials there are and which is the best.

        Time limits and the number at a time decide when a trial runs, so that a sweep can be continued with others.
        """
        return {
            "algorithm": [self.algorithm, self.seed, self.log_base],
            "space": {name: dict(search) for name, search in self.space.items()},
            "objective": [self.goal, self.metric],
            "trials": self.trials,
            "policy": dict(self.policy) if self.policy else None,
        }

    def best(self, values: Sequence[float]) -> float:
        """The best of some values of the primary metric."""
        return max(values) if self.goal == "maximize" else min(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSweep(PlannedStep):
    """A sweep step; all but the search is what its trials have in common."""

    search: SweepSearch

    def trial(self, number: int, parameters: TrialParameters) -> PlannedStep:
        """The step that one trial runs: the sweep's, with the trial's values in place of the search space.

        Its name is the sweep's, a dot and the number: no step's name begins with a digit, so it cannot be another's.
        """
        texts = {name: literal_text(value) for name, value in parameters.items()}
        bound = {
            name: replace_references(value, lambda reference: texts.get(reference.name, str(reference)))
            for name, value in self.literals.items()
            if any(found.scope == "search_space" for found in find_references(value))
        }
        # The sweep's outputs are registered once, under the names that the pipeline gives them.
        outputs = {name: replace(output, asset_name=None, asset_version=None) for name, output in self.outputs.items()}
        return replace(
            PlannedStep(**self.attributes),
            kind="command",
            name=f"{self.name}.{number}",
            inputs=MappingProxyType({**self.inputs, **bound, **texts}),
            outputs=MappingProxyType(outputs),
            timeout=self.timeout if self.search.trial_timeout is None else self.search.trial_timeout,
        )
