"""Two or more runs beside each other, as an object of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from allranks.cli.compare_runs import comparison_lines
from allranks.cli.run_state import read_run_state
from allranks.errors import UsageError
from allranks.files import write_text
from allranks.local.logged import MetricCurve
from allranks.local.metrics_file import read_metrics_document
from allranks.local.page.compare import compare_runs, comparison_page
from allranks.local.page.document import run_document
from allranks.notebook.view import RunView

_HEIGHT = 640  # of the page in a notebook, in pixels


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What differs between runs; its text is what ``allranks runs compare`` prints, a notebook shows its page.

    Attributes:
        document: all that was found, as ``allranks runs compare --json`` prints it.
    """

    document: Mapping[str, Any]

    @property
    def runs(self) -> list[str]:
        """The ids, in the order in which they were given."""
        return [run["run_id"] for run in self.document["runs"]]

    @property
    def metrics(self) -> Any:
        """The last value of each metric in each run; see ``table_of`` for its form."""
        return self.table_of("metrics")

    @property
    def inputs(self) -> Any:
        """The inputs that differ; see ``table_of`` for its form."""
        return self.table_of("inputs")

    def table_of(self, title: str) -> Any:
        """A table of the comparison: ``metrics``, ``resources``, ``inputs``, ``data`` or ``environment``.

        Returns:
            A DataFrame of pandas where that is installed, a line for each step and name and a column for each run;
            else a list of dictionaries with ``step``, ``name`` and the runs.
        """
        found = [dict(zip(self.runs, row["values"], strict=True)) for row in self.document[title]]
        if title == "metrics":  # of which JSON has texts where they are not finite
            found = [read_metrics_document(values) for values in found]
        about = [{"step": row["step"], "name": row["name"]} for row in self.document[title]]
        rows = [one | values for one, values in zip(about, found, strict=True)]
        try:
            import pandas as pd
        except ImportError:
            return rows
        return pd.DataFrame(rows, columns=["step", "name", *self.runs]).set_index(["step", "name"])

    def curves(self, step: str, metric: str) -> dict[str, MetricCurve]:
        """The values of a metric in each run that has it, ``(step of the training, value)`` each, by run."""
        found = self.document["curves"].get(step, {}).get(metric, {})
        return {name: [(place, value) for place, value in points] for name, points in found.items()}

    def write_page(self, path: str | Path) -> Path:
        """Write the page, one file that needs nothing else; raises StorageError where it cannot be written."""
        write_text(Path(path), comparison_page(self.document))
        return Path(path)

    def __str__(self) -> str:
        return "\n".join(comparison_lines(self.document))

    def _repr_html_(self) -> str:
        """The page, in a frame of its own, so that neither its style nor the notebook's touches the other."""
        page = escape(comparison_page(self.document), quote=True)
        title = escape(f"comparison of {', '.join(self.runs)}")
        return f'<iframe title="{title}" srcdoc="{page}" style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'


def compare_views(runs: Sequence[RunView]) -> RunComparison:
    """Compare runs, the first of which the others are held to.

    Raises:
        UsageError: fewer than two, or one of them twice.
    """
    folders = [run.folder for run in runs]
    if len({folder.path for folder in folders}) < max(2, len(folders)):
        raise UsageError(f"{len(runs)} runs cannot be compared: two or more are needed, each named once.")
    return RunComparison(compare_runs(folders, [run_document(one, read_run_state(one)) for one in folders]))
