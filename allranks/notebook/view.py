"""A run as an object of Python: what became of its steps, and what they have printed and measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from allranks.cli.run_state import (
    logs_by_rank,
    read_run_state,
    step_with_logs,
    steps_and_trials,
)
from allranks.cli.text import name_suggestion, open_in_browser
from allranks.errors import AllranksError, UnknownNameError
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.logged import MetricCurve, read_step_curves
from allranks.local.page.document import curves_of_steps
from allranks.local.past import past_result
from allranks.local.report import write_run_page
from allranks.local.resources.summary import step_resources
from allranks.local.result import RunResult
from allranks.local.traces import LogTraces
from allranks.local.tracking.reading import TrackingReader
from allranks.notebook.page import notebook_page
from allranks.redaction import redact


class RunFailedError(AllranksError):
    """A run whose steps did not all succeed, where it was asked to be told; ``run`` is what became of it."""

    kind = "run_failed"
    exit_code = 1

    def __init__(self, run: RunView) -> None:
        super().__init__(run.explanation.removeprefix("error: ") or f"run {run.run_id} {run.status}")
        self.run = run


@dataclass(frozen=True, slots=True)
class RunView(RunResult):
    """A run of a folder, as it ended or as it is now; what its methods read is read anew each time."""

    @classmethod
    def of_result(cls, result: RunResult) -> Self:
        """The view of a result."""
        return cls(**{one.name: getattr(result, one.name) for one in fields(result)})

    @classmethod
    def of_folder(cls, folder: RunFolder) -> Self:
        """The view of what lies in a run's folder."""
        return cls.of_result(past_result(read_run_state(folder)))

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        return RunsHome(self.run_dir.parents[1]).run(self.run_id)

    def logs(self, step: str, rank: int | None = None) -> str:
        """What the ranks of a step have printed, secrets blotted out; of all ranks one after another, or of one.

        Args:
            step: its name; a trial of a sweep is ``SWEEP.NUMBER``.
            rank: from 0; None for all.

        Raises:
            UnknownNameError: no such step or rank, or the step has not started.
        """
        known = steps_and_trials(self.folder)
        _require(step, known, f"run {self.run_id} has no step")
        folder = step_with_logs(self.folder.home, self.folder, step, known[step])
        found = logs_by_rank(folder)
        if not found:
            raise UnknownNameError(f"step {step!r} has no log: it has not started.")
        if rank is not None:
            _require(rank, found, f"step {step!r} has no rank")
            found = {rank: found[rank]}
        heads = {one: f"--- rank {one}\n" if len(found) > 1 else "" for one in found}
        text = "".join(heads[one] + path.read_text(errors="replace") for one, path in found.items())
        return LogTraces(folder.logs).point(redact(text))

    def curve(self, step: str, metric: str) -> MetricCurve:
        """All values of a metric of a step, ``(step of the training, value)`` each; what is not finite is left out.

        Raises:
            UnknownNameError: no such step, or it has not logged such a metric.
        """
        curves = self._curves(step)
        _require(metric, curves, f"step {step!r} has logged no metric")
        return curves[metric]

    def metrics(self, step: str) -> Any:
        """All values of all metrics of a step, a line for each step of the training, in its order.

        Returns:
            A DataFrame of pandas where that is installed, its index the step of the training, a column for each
            metric, NaN where it was not logged then; else a list of dictionaries, with ``step`` for the index.

        Raises:
            UnknownNameError: no such step.
        """
        lines: dict[float, dict[str, float]] = {}
        curves = self._curves(step)
        for name, points in curves.items():
            for place, value in points:
                lines.setdefault(place, {})[name] = value
        rows = [{"step": place, **lines[place]} for place in sorted(lines)]
        try:
            import pandas as pd
        except ImportError:
            return rows
        return pd.DataFrame(rows, columns=["step", *curves]).set_index("step")

    def resources(self, step: str) -> dict[str, Any]:
        """What a step has used of the machine, as ``--json`` has it: peaks, means and sums, by rank under ``ranks``.

        Empty for a step that has not started; of one in containers a ``note`` that it is not measured.

        Raises:
            UnknownNameError: no such step.
        """
        _require(step, self.steps, f"run {self.run_id} has no step")
        return step_resources(self.folder, step)[0]

    def written_files(self) -> list[Path]:
        """What a script has written beside itself, such as ``outputs/model.pt``: the files, node by node."""
        from allranks.cli.script_run import written_files

        nodes = written_files(self).values()
        return [Path(node["folder"]) / file for node in nodes for file in node["files"]]

    def open(self) -> Path:
        """Open the run's page in a browser, where there is a screen; returns the page's file either way."""
        page = self.folder.report.absolute()
        if not page.is_file() or not self.folder.alive:
            write_run_page(self.folder, read_run_state(self.folder))
        open_in_browser(page.as_uri())
        return page

    def _curves(self, step: str) -> Mapping[str, MetricCurve]:
        _require(step, self.steps, f"run {self.run_id} has no step")
        with TrackingReader(self.folder.home) as reader:
            return read_step_curves(self.folder, step, reader)

    def _repr_html_(self) -> str:
        """The steps with their curves, for notebooks."""
        return notebook_page(self, curves_of_steps(self.folder, {"steps": self.steps}))


def _require(wanted: object, known: Iterable[object], message: str) -> None:
    if wanted not in (choices := list(known)):
        texts = [str(choice) for choice in choices]
        close = name_suggestion(wanted, texts) if isinstance(wanted, str) else ""
        raise UnknownNameError(f"{message} {wanted!r}{close}; there are: {', '.join(texts) or 'none'}.")
