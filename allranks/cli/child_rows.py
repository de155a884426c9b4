"""The MLflow runs that a step's script has made itself, as lines below the step's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from allranks.cli.text import one_line
from allranks.local.tracking.reading import ChildRun, child_depths
from allranks.wording import duration_words, number_words

_MOST_SHOWN = 20  # of one step; the page and --json have more


def child_rows(
    children: Sequence[ChildRun], shown_metrics: Callable[[Mapping[str, float]], str]
) -> Iterator[tuple[str, str, str, str]]:
    """Name, status, time and last metrics of each; the name is indented below that of the run that it is nested in."""
    shown = children[:_MOST_SHOWN]
    for child, depth in zip(shown, child_depths(shown), strict=True):
        name = "  " * (depth + 1) + one_line(child.name)
        yield name, child.status, duration_words(child.seconds), shown_metrics(child.metrics)
    if len(children) > _MOST_SHOWN:
        yield f"  and {len(children) - _MOST_SHOWN} more", "", "", ""


def metrics_text(metrics: Mapping[str, float]) -> str:
    """``loss=0.25 odd=nan``."""
    return " ".join(f"{one_line(name)}={number_words(value)}" for name, value in metrics.items())
