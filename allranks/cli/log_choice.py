"""Which logs a run shows while it goes on: ``--logs``, ``--logs train``, ``--logs train:0,evaluate``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from allranks.cli.text import name_suggestion
from allranks.errors import UnknownNameError, UsageError
from allranks.local.plan import RunPlan

ALL_LOGS, NO_LOGS = "all", "none"


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Steps, each with the ranks whose logs are shown, or None for all; ``others`` stands for all other steps."""

    steps: Mapping[str, frozenset[int] | None] = field(default_factory=dict)
    others: bool = False

    def __bool__(self) -> bool:
        """Whether any log is shown."""
        return self.others or bool(self.steps)

    def wants(self, step: str, rank: int) -> bool:
        """Whether the log of this rank is shown; a sweep's name stands for those of its trials."""
        sweep, _, number = step.rpartition(".")
        for name in (step, sweep) if number.isdigit() else (step,):
            if name in self.steps:
                ranks = self.steps[name]
                return ranks is None or rank in ranks
        return self.others


def parse_logs(texts: Iterable[str], plan: RunPlan) -> LogChoice:
    """What the values of ``--logs`` ask for.

    Raises:
        UnknownNameError: the plan has no such step.
        UsageError: a rank is no number, or more than the step has.
    """
    steps: dict[str, frozenset[int] | None] = {}
    words = [word for text in texts for word in text.split(",") if word]
    if words in ([ALL_LOGS], [NO_LOGS]):
        return LogChoice(others=words == [ALL_LOGS])
    for word in words:
        name, colon, rank = word.partition(":")
        if name not in plan.steps:
            known = f"Its steps: {', '.join(plan.steps)}; {ALL_LOGS} and {NO_LOGS} stand alone."
            raise UnknownNameError(
                f"--logs {word}: there is no step {name!r}{name_suggestion(name, plan.steps)}.", known
            )
        if not colon:
            steps[name] = None
        elif (ranks := steps.get(name, frozenset())) is not None:
            steps[name] = ranks | {_rank(word, rank, plan.steps[name].ranks)}
    return LogChoice(steps)


def _rank(word: str, text: str, most: int) -> int:
    if not text.isdecimal() or int(text) >= max(1, most):
        raise UsageError(f"--logs {word}: {text!r} is no rank of the step.", f"Its ranks: 0 to {max(1, most) - 1}.")
    return int(text)
