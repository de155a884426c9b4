"""Which values the next trial tries. The same search always tries the same, and nothing twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from allranks.local.sweep.advice import Advice
from allranks.local.sweep.search import Parameters, Search
from allranks.spec.search_space import value_at

FUTILE = 1000  # draws in a row that were all tried before: then there is nothing left to draw


class Past(NamedTuple):
    """A trial that was begun: its values, and its metric once it is over and has one."""

    parameters: Parameters
    metric: float | None
    over: bool


class Sampler:
    """Chooses the values of one trial after another."""

    exhausted = False

    def next(self, past: Sequence[Past]) -> Parameters | None:
        """The next trial's values; None when there are none, or none yet (``exhausted`` tells).

        Args:
            past: all trials so far, in order; those of an earlier engine included.

        Raises:
            CannotRunHereError: the library that chooses has failed.
        """
        raise NotImplementedError

    def close(self) -> None:
        """No more trials are wanted."""


def make_sampler(search: Search) -> Sampler:
    """The sampler for a search's algorithm."""
    if search.algorithm == "grid":
        return InOrder(grid(search))
    if search.algorithm == "random":
        return InOrder(distinct(search, uniform_points(search)))
    return Sobol(search) if search.algorithm == "sobol" else Bayesian(search)


def grid(search: Search) -> Iterator[Parameters]:
    """Every combination of the choices, the last name of the search space changing first."""
    for values in itertools.product(*(choice["values"] for choice in search.space.values())):
        yield dict(zip(search.space, values, strict=True))


def uniform_points(search: Search) -> Iterator[list[float]]:
    """Points of the unit cube, without end, from the search's seed."""
    draw = random.Random(search.seed)  # noqa: S311 nothing is kept secret here
    while True:
        yield [draw.random() for _ in search.space]


def distinct(search: Search, points: Iterable[Sequence[float]]) -> Iterator[Parameters]:
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
        if futile > FUTILE:
            return
        if not futile:
            seen.add(key)
            yield found


class InOrder(Sampler):
    """Trials in an order that does not depend on how they end."""

    def __init__(self, parameters: Iterator[Parameters]) -> None:
        self._parameters = parameters
        self._given = 0

    def next(self, past: Sequence[Past]) -> Parameters | None:
        """See ``Sampler``."""
        found: Parameters | None = None
        while self._given <= len(past):
            found = next(self._parameters, None)
            self._given += 1
        self.exhausted = found is None
        return found


class _Advised(Sampler):
    """Asks a library, in a process of its own."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._advice = Advice()

    def close(self) -> None:
        """See ``Sampler``."""
        self._advice.close()


class Sobol(_Advised):
    """Points of a scrambled Sobol sequence; they are asked for once, with as many as there are trials."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._ready: InOrder | None = None

    def next(self, past: Sequence[Past]) -> Parameters | None:
        """See ``Sampler``."""
        if self._ready is None:
            search = self._search
            request = {"want": "sobol", "seed": search.seed, "dimensions": len(search.space), "count": search.trials}
            points = self._advice.ask(request)
            if points is None:
                return None
            self._ready = InOrder(distinct(search, points))
            self._advice.close()
        found = self._ready.next(past)
        self.exhausted = self._ready.exhausted
        return found


class Bayesian(_Advised):
    """Each trial is chosen from what the ones before it have brought."""

    def next(self, past: Sequence[Past]) -> Parameters | None:
        """See ``Sampler``."""
        search = self._search
        # What has changed since the question was asked does not change the question.
        found: Parameters | None = self._advice.ask(
            {
                "want": "bayesian",
                "seed": search.seed,
                "space": {name: dict(one) for name, one in search.space.items()},
                "goal": search.goal,
                "trials": search.trials,
                "past": [[dict(one.parameters), one.metric, one.over] for one in past],
            }
        )
        return found
