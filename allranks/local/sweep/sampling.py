"""Which values the next trial tries. The same search always tries the same, and nothing twice."""

from __future__ import annotations

import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from allranks.local.sweep.advice import SamplingAdvice
from allranks.local.sweep.search import SweepSearch, TrialParameters
from allranks.spec.search_space import value_at

_FUTILE = 1000  # draws in a row that were all tried before: then there is nothing left to draw


class PastTrial(NamedTuple):
    """A trial that was begun: its values, and its metric once it is finished and has one."""

    parameters: TrialParameters
    metric: float | None
    is_finished: bool


class TrialSampler(ABC):
    """Chooses the values of one trial after another."""

    exhausted = False

    @abstractmethod
    def next(self, past: Sequence[PastTrial]) -> TrialParameters | None:
        """The next trial's values; None when there are none, or none yet (``exhausted`` tells).

        The past are all trials so far, in order, those of an earlier engine included. Raises CannotRunHereError if the
        library that chooses has failed.
        """

    def close(self) -> None:  # noqa: B027  # most have nothing to end
        """No more trials are wanted."""


def make_sampler(search: SweepSearch) -> TrialSampler:
    """The sampler for a search's algorithm."""
    if search.algorithm == "grid":
        return OrderedSampler(grid_parameters(search))
    if search.algorithm == "random":
        return OrderedSampler(distinct_parameters(search, uniform_points(search)))
    return SobolSampler(search) if search.algorithm == "sobol" else BayesianSampler(search)


def grid_parameters(search: SweepSearch) -> Iterator[TrialParameters]:
    """Every combination of the choices, the last name of the search space changing first."""
    for values in itertools.product(*(choice["values"] for choice in search.space.values())):
        yield dict(zip(search.space, values, strict=True))


def uniform_points(search: SweepSearch) -> Iterator[list[float]]:
    """Points of the unit cube, without end, from the search's seed."""
    draw = random.Random(search.seed)  # noqa: S311 nothing is kept secret here
    while True:
        yield [draw.random() for _ in search.space]


def distinct_parameters(search: SweepSearch, points: Iterable[Sequence[float]]) -> Iterator[TrialParameters]:
    """The values at the points, without repetitions; ends when a thousand points in a row bring nothing new."""
    seen: set[tuple[Any, ...]] = set()
    futile = 0
    for point in points:
        found = {
            name: value_at(one, place, search.log_base)
            for (name, one), place in zip(search.space.items(), point, strict=True)
        }
        key = tuple(map(repr, found.values()))
        futile = futile + 1 if key in seen else 0
        if futile > _FUTILE:
            return
        if not futile:
            seen.add(key)
            yield found


class OrderedSampler(TrialSampler):
    """Trials in an order that does not depend on how they end."""

    def __init__(self, parameters: Iterator[TrialParameters]) -> None:
        self._parameters = parameters
        self._given = 0

    def next(self, past: Sequence[PastTrial]) -> TrialParameters | None:
        """See ``Sampler``."""
        found: TrialParameters | None = None
        while self._given <= len(past):
            found = next(self._parameters, None)
            self._given += 1
        self.exhausted = found is None
        return found


class _Advised(TrialSampler):
    """Asks a library, in a process of its own."""

    def __init__(self, search: SweepSearch) -> None:
        self._search = search
        self._advice = SamplingAdvice()

    def close(self) -> None:
        """See ``Sampler``."""
        self._advice.close()


class SobolSampler(_Advised):
    """Points of a scrambled Sobol sequence; they are asked for once, with as many as there are trials."""

    def __init__(self, search: SweepSearch) -> None:
        super().__init__(search)
        self._ready: OrderedSampler | None = None

    def next(self, past: Sequence[PastTrial]) -> TrialParameters | None:
        """See ``Sampler``."""
        if self._ready is None:
            search = self._search
            request = {"want": "sobol", "seed": search.seed, "dimensions": len(search.space), "count": search.trials}
            points = self._advice.ask(request)
            if points is None:
                return None
            self._ready = OrderedSampler(distinct_parameters(search, points))
            self._advice.close()
        found = self._ready.next(past)
        self.exhausted = self._ready.exhausted
        return found


class BayesianSampler(_Advised):
    """Each trial is chosen from what the ones before it have brought."""

    def next(self, past: Sequence[PastTrial]) -> TrialParameters | None:
        """See ``Sampler``."""
        search = self._search
        # What has changed since the question was asked does not change the question.
        found: TrialParameters | None = self._advice.ask(
            {
                "want": "bayesian",
                "seed": search.seed,
                "space": {name: dict(one) for name, one in search.space.items()},
                "goal": search.goal,
                "trials": search.trials,
                "past": [[dict(one.parameters), one.metric, one.is_finished] for one in past],
            }
        )
        return found
