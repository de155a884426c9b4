"""A run that is followed in a notebook: one output that is drawn again as the run goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from allranks.cli.log_choice import LogChoice
from allranks.cli.log_stream import LogStream
from allranks.cli.shown_run import ShownRun, marked_lines
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder
from allranks.local.logged import FollowedFiles, read_step_curves
from allranks.local.plan import RunPlan
from allranks.local.result import RUNNING, RunResult, StepResult
from allranks.local.tracking.reading import TrackingReader
from allranks.notebook.page import notebook_page

_NEXT_LOOK = 0.5  # seconds between two looks
_SHARE = 50  # and at least so many times what a look takes


def in_notebook() -> bool:
    """Whether this Python is the kernel of a notebook; asked without importing IPython, which costs half a second."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookObserver(ShownRun):
    """Draws the steps below the cell that runs them; the engine's own loop does it, no thread is started.

    The chosen ``logs`` are printed below that, as any cell prints.
    """

    def __init__(self, logs: LogChoice | None = None) -> None:
        self._logs = LogStream(logs or LogChoice(), lambda *lines: print(marked_lines(*lines), end=""))
        self._run: RunFolder | None = None
        self._handle: Any = None
        self._due = 0.0
        self._followed = FollowedFiles()

    def started(self, run: RunFolder, plan: RunPlan) -> None:  # noqa: ARG002 the steps come with each look
        """Make the output."""
        from IPython.display import HTML, display

        self._run = run
        self._handle = display(HTML(f"<p>run {run.id}</p>"), display_id=True)

    def changed(self, step: StepResult) -> None:
        """Draw at the next moment."""
        self._logs.changed(step)
        self._due = 0.0

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Draw, unless it was drawn a moment ago."""
        self._logs.look()
        began = time.monotonic()
        if self._run is not None and began >= self._due:
            results = {name: execution.result() for name, execution in steps.items()}
            self._draw(RunResult(self._run.id, RUNNING, self._run.path, results))
            self._due = time.monotonic() + max(_NEXT_LOOK, _SHARE * (time.monotonic() - began))

    def close(self) -> None:
        """Print what is left of the logs."""
        self._logs.close()

    def ended(self, result: RunResult) -> None:
        """Draw what became of the run, read whole: outputs have just been moved."""
        self._followed = FollowedFiles()
        self._draw(result)

    def _draw(self, result: RunResult) -> None:
        if self._run is None:
            return
        from IPython.display import HTML

        begun = [name for name, step in result.steps.items() if step.started is not None or step.reused_from]
        with TrackingReader(self._run.home) as reader:
            curves = {name: read_step_curves(self._run, name, reader, self._followed) for name in begun}
        self._handle.update(HTML(notebook_page(result, curves)))
