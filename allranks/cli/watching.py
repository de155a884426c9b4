"""What a person sees of a job on Azure: a live table on a terminal, lines elsewhere, the log of a step that failed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allranks.azure.jobs import JobState, StepState
from allranks.azure.watch import FailureLog, JobOutcome, Watcher, watch_job
from allranks.cli import text
from allranks.cli.live_table import STATUS_STYLES
from allranks.local.result import FAILED
from allranks.wording import duration_words

if TYPE_CHECKING:
    from rich.live import Live

    from allranks.azure.client import Workspace


class _SilentWatcher(Watcher):
    """Shows no step: the one JSON document comes at the end."""

    def tell(self, note: str) -> None:
        """The service is busy."""
        text.print_note(note)

    def close(self) -> None:
        """The job is over."""


class _LineWatcher(_SilentWatcher):
    """One line for each change."""

    def __init__(self, job: str) -> None:
        self._job = job

    def changed(self, step: StepState) -> None:
        """Print the step's new state."""
        print(f"  {step.name}: {_described(step)}", flush=True)

    def failed(self, step: StepState, log: FailureLog | None) -> None:
        """Print the service's error and the end of the step's log."""
        print(f"error: step {step.name}: {step.error or 'failed, and Azure does not say why'}", file=sys.stderr)
        if log is None:
            print("  it wrote no log", file=sys.stderr)
            return
        for line in log.lines:
            print(f"  | {line}", file=sys.stderr)
        others = f" (and {', '.join(log.others)})" if log.others else ""
        print(f"  log: {log.name}{others}", file=sys.stderr)
        print(f"  all logs: allranks runs logs --azure {self._job} {step.name}", file=sys.stderr)


class _TableWatcher(_LineWatcher):
    """A table of all steps, in place; what failed stands above it."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        from rich.live import Live

        self._live: Live = Live(auto_refresh=False, transient=True)
        self._live.start()
        self._steps: Sequence[StepState] = ()

    def changed(self, step: StepState) -> None:
        """The table shows it."""

    def failed(self, step: StepState, log: FailureLog | None) -> None:
        """Take the table away while the log is printed."""
        self._live.stop()
        super().failed(step, log)
        self._live.start()

    def looked(self, steps: Sequence[StepState]) -> None:
        """Draw the table."""
        from rich.table import Table
        from rich.text import Text

        self._steps = steps
        table = Table(box=None, pad_edge=False)
        for title in ("step", "status", "time"):
            table.add_column(title, no_wrap=True)
        for step in steps:
            status = Text(step.status, style=STATUS_STYLES.get(step.status, ""))
            table.add_row(step.name, status, duration_words(step.seconds))
        self._live.update(table, refresh=True)

    def close(self) -> None:
        """Leave a line for each step in the table's place."""
        self._live.stop()
        for step in self._steps:
            print(f"  {step.name}: {_described(step)}")


def _described(step: StepState) -> str:
    """One line on a step."""
    return step.status if step.seconds is None else f"{step.status}, {duration_words(step.seconds)}"


def follow_job(client: Any, workspace: Workspace, job: JobState, *, as_json: bool) -> JobOutcome:
    """Show a job until it is over.

    Raises:
        AllranksError: Azure refuses, or stays away.
        KeyboardInterrupt: the user looks away; the job goes on, and how to cancel it has been printed.
    """
    from allranks.azure.explain import service_errors

    visible = _TableWatcher if sys.stdout.isatty() else _LineWatcher
    watcher = _SilentWatcher() if as_json else visible(job.name)
    try:
        with service_errors(f"watching {job.name}", workspace):
            return watch_job(client, job.name, watcher)
    except KeyboardInterrupt:
        print(f"\n{job.name} goes on in Azure.", file=sys.stderr)
        print(f"  watch it again: allranks runs watch {job.name}", file=sys.stderr)
        print(f"  cancel it:      allranks runs cancel {job.name}", file=sys.stderr)
        raise
    finally:
        watcher.close()


def outcome_summary(job: JobState, outcome: JobOutcome) -> str:
    """The end of a job for people."""
    failed = [step.name for step in outcome.steps if step.status == FAILED and not step.is_pipeline]
    which = f": {', '.join(failed)}" if failed else f": {outcome.error}" if outcome.error else ""
    return f"{outcome.status}{which}\n  Studio  {job.studio}"


def outcome_document(job: JobState, outcome: JobOutcome | None) -> dict[str, Any]:
    """What ``--json`` prints about a job."""
    if outcome is None:
        return job.document()
    steps = {step.name: step.document() for step in outcome.steps}
    for name, log in outcome.logs.items():
        steps[name] |= {"log": {"name": log.name, "lines": list(log.lines)}}
    return job.document() | {"status": outcome.status, "error": outcome.error or None, "steps": steps}
