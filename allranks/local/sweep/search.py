"""A sweep's search with every count known, the sweep as it is planned, and the step that a trial runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from allranks.errors import CannotRunHereError
from allranks.local import machine
from allranks.local.plan import PlannedStep
from allranks.spec import Sweep, literal_text, references, substitute
from allranks.spec.model import Literal
from allranks.spec.sweep import MOST_TRIALS

TrialParameters: TypeAlias = Mapping[str, Literal]
"""The values that one trial has for the names of the search space."""

_PACKAGES = {"sobol": "scipy", "bayesian": "optuna"}


@dataclass(frozen=True, slots=True)
class SweepSearch:
    """What a sweep tries, and when it ends.

    Attributes:
        algorithm: ``random``, ``sobol``, ``grid`` or ``bayesian``.
        seed: 0 where the YAML is silent, so that a second run tries the same values and finds the finished trials.
        space: name to the distribution, as ``spec.Sweep`` holds it.
        goal: ``minimize`` or ``maximize``.
        metric: the primary metric's name.
        trials: at most so many.
        at_once: at most so many at a time.
        timeout: seconds for the whole sweep, or None.
        trial_timeout: seconds for each trial, or None.
        policy: of early termination, as ``spec.Sweep`` holds it, or None.
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


def plan_search(sweep: Sweep, ranks: int, limit: Callable[[str], int | None]) -> SweepSearch:
    """Settle a sweep's counts.

    Args:
        sweep: as it was read and checked.
        ranks: processes of one trial; no more trials run at a time than the machine has cores for.
        limit: the value of one of the sweep's limits, or None where the YAML is silent.

    Raises:
        CannotRunHereError: a package that the sampling needs is not installed.
    """
    needed = _PACKAGES.get(sweep.algorithm)
    if needed is not None and find_spec(needed) is None:
        raise CannotRunHereError(
            f"{sweep.algorithm} sampling needs {needed}, which is not installed.", 'pip install "allranks[sweep]"'
        )
    trials = limit("max_total_trials") or MOST_TRIALS  # what Azure ML takes where the YAML is silent
    return SweepSearch(
        algorithm=sweep.algorithm,
        seed=sweep.seed or 0,
        log_base=sweep.log_base,
        space=sweep.space,
        goal=sweep.objective[0],
        metric=sweep.objective[1],
        trials=trials,
        at_once=min(limit("max_concurrent_trials") or trials, max(1, machine.usable_cores() // ranks)),
        timeout=limit("timeout"),
        trial_timeout=limit("trial_timeout"),
        policy=sweep.early_termination,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSweep(PlannedStep):
    """A sweep step; all but the search is what its trials have in common."""

    kind: ClassVar[str] = "sweep"

    search: SweepSearch

    @classmethod
    def from_common(cls, common: PlannedStep, search: SweepSearch) -> PlannedSweep:
        """The sweep of a search whose trials have this in common."""
        return cls(**_attributes(common), search=search)

    def trial(self, number: int, parameters: TrialParameters) -> PlannedStep:
        """The step that one trial runs: the sweep's, with the trial's values in place of the search space.

        Its name is the sweep's, a dot and the number: no step's name begins with a digit, so it cannot be another's.
        """
        texts = {name: literal_text(value) for name, value in parameters.items()}
        bound = {
            name: substitute(value, lambda reference: texts[reference.name])
            for name, value in self.literals.items()
            if any(found.scope == "search_space" for found in references(value))
        }
        # The sweep's outputs are registered once, under the names that the pipeline gives them.
        outputs = {name: replace(output, asset_name=None, asset_version=None) for name, output in self.outputs.items()}
        return replace(
            PlannedStep(**_attributes(self)),
            name=f"{self.name}.{number}",
            inputs=MappingProxyType({**self.inputs, **bound, **texts}),
            outputs=MappingProxyType(outputs),
            timeout=self.timeout if self.search.trial_timeout is None else self.search.trial_timeout,
        )


def _attributes(step: PlannedStep) -> dict[str, Any]:
    """What every planned step has, by name."""
    return {one.name: getattr(step, one.name) for one in fields(PlannedStep)}
