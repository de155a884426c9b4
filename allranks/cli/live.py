"""What a person sees of a run: a live table on a terminal, plain lines elsewhere, nothing with --json; and its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.attempt_words import attempt_words, retrying_words
from allranks.cli.child_rows import child_rows
from allranks.cli.live_curves import LiveCurves
from allranks.cli.live_progress import LiveProgress
from allranks.cli.live_table import best_trial, brief_metrics, shown_parameters, status_table
from allranks.cli.log_choice import LogChoice
from allranks.cli.log_stream import LogStream
from allranks.cli.shown_run import LogObserver, RunDisplay, ShownRun, marked_lines, stopping_words
from allranks.cli.text import aligned_rows, print_note
from allranks.local.cache import resume_rows
from allranks.local.engine import run_plan
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.goodput import restart_words
from allranks.local.memory_room import refuse_crowded
from allranks.local.options import RunObserver
from allranks.local.plan import RunPlan
from allranks.local.result import RETRYING, RUNNING, SUCCEEDED, RunResult, StepResult
from allranks.performing import PreparedRun
from allranks.redaction import redact
from allranks.wording import duration_words, number_words, with_count

if TYPE_CHECKING:
    from rich.live import Live

_REFRESH = 0.25  # seconds
_MOST_WAITING = 2**18  # bytes of one log that a terminal is given at a time: more than anybody reads
_MEASURES = ("accuracy", "bits_per_byte")
"""What an evaluation is judged by, and the last lines of a run repeat."""


def perform_shown(
    prepared: PreparedRun, home: RunsHome, *, as_json: bool = False, display: RunDisplay | None = None
) -> RunResult:
    """Run what was prepared to its end; unless ``as_json``, its notes, its progress and its end are printed.

    Environments and images that are not there are built first.

    Args:
        prepared: what is run.
        home: the runs folder.
        as_json: print nothing: the caller prints the one document.
        display: what else is shown, and where; without it no logs and no events are.

    Raises:
        StorageError: the runs folder, or the file for events, cannot be written.
        CannotRunHereError: an environment could not be built, or the ranks have no room in the memory.
    """
    refuse_crowded(prepared.plan)
    home.prepare()
    shown = display or RunDisplay()
    _build_what_is_missing(prepared)
    is_silent = as_json or shown.events_to_output
    if not is_silent:
        print_notes(prepared.plan)
    observers = _observers(shown, retries=prepared.request.retries, is_silent=is_silent)
    with ExitStack() as open_ones:
        for observer in observers:
            open_ones.callback(observer.close)
        result = run_plan(prepared.plan, prepared.options(home), _Together(observers, is_silent=is_silent))
    for observer in observers:
        observer.ended(result)
    if not is_silent and shown.observer is None:
        _print_summary(result)
    return result


def _build_what_is_missing(prepared: PreparedRun) -> None:
    environments = [one for one in prepared.plan.environments if not one.is_built]
    images = [one for one in prepared.plan.images if not one.is_built]
    if environments or images:
        from allranks.cli.build_phases import build_environments, build_images

        build_environments(environments, target=prepared.request.target)
        build_images(images)


def _observers(shown: RunDisplay, *, retries: int | None, is_silent: bool) -> list[ShownRun]:
    observers: list[ShownRun] = []
    if shown.events is not None:
        from allranks.cli.event_stream import EventObserver

        observers.append(EventObserver(shown.events, shown.logs or LogChoice()))
    if shown.beside is not None:
        observers.append(shown.beside)
    if shown.observer is not None and not is_silent:
        observers.append(shown.observer)
    elif is_silent:
        if shown.logs and not shown.events_to_output:
            observers.append(LogObserver(shown.logs, sys.stderr))
    elif sys.stdout.isatty():
        observers.append(_LiveTable(shown.logs or LogChoice(), retries))
    else:
        observers.append(_LineObserver(LogChoice(others=True) if shown.logs is None else shown.logs, retries))
    return observers


def print_notes(plan: RunPlan) -> None:
    """What a user should know of a plan, on standard error."""
    for note in plan.notes:
        print_note(note)


class _Together(RunObserver):
    """Tells several observers."""

    def __init__(self, observers: Sequence[ShownRun], *, is_silent: bool) -> None:
        self._observers = observers
        self._is_silent = is_silent

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """The run begins."""
        for observer in self._observers:
            observer.started(run, plan)

    def changed(self, step: StepResult) -> None:
        """A step has another status."""
        for observer in self._observers:
            observer.changed(step)

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Time has passed."""
        for observer in self._observers:
            observer.tick(steps)

    def stopping(self, seconds: float) -> None:
        """The ranks were asked to save and to end."""
        for observer in self._observers:
            observer.stopping(seconds)
        self._note(stopping_words(seconds))

    def noted(self, note: str) -> None:
        """Something that the user should know, such as a part of the run that has failed."""
        if not self._is_silent:
            self._note(note)

    def _note(self, note: str) -> None:
        """Print a note above the table, or on standard error where there is none."""
        for observer in self._observers:
            observer.noted(note)
        if not any(isinstance(observer, _LiveTable) for observer in self._observers):
            print_note(note)


class _LineObserver(LogObserver):
    """One line for each change, for logs and pipes, and between them what the ranks print."""

    def __init__(self, logs: LogChoice, retries: int | None) -> None:
        super().__init__(logs, sys.stdout)
        self._retries = retries

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """Name the run and its folder."""
        print(f"run {run.id}: {with_count(len(plan.steps), 'step')}, in {run.path}", flush=True)

    def changed(self, step: StepResult) -> None:
        """Print what became of the step, after what it has printed."""
        super().changed(step)
        print(redact(f"  {step.name}: {_described(step, self._retries)}"), flush=True)


class _LiveTable(ShownRun):
    """A table of all steps, drawn again a few times a second by the engine's own loop: no thread is started."""

    def __init__(self, logs: LogChoice, retries: int | None) -> None:
        self._retries = retries
        self._live: Live | None = None
        self._curves: LiveCurves | None = None
        self._progress = LiveProgress()
        self._results: dict[str, StepResult] = {}
        self._drawn = 0.0
        self._styled = "NO_COLOR" not in os.environ
        self._logs = LogStream(logs, self._print_logs, styled=self._styled, most=_MOST_WAITING)

    def started(self, run: RunFolder, plan: RunPlan) -> None:  # noqa: ARG002 the table knows the steps
        """Open the table."""
        self._curves = LiveCurves(run.home)
        print(f"run {run.id} in {run.path}", flush=True)
        from rich.live import Live

        self._live = Live(auto_refresh=False, transient=True, vertical_overflow="crop")
        self._live.start()

    def changed(self, step: StepResult) -> None:
        """Remember what becomes of a step; that an attempt of it has failed is said above the table, to stay."""
        self._logs.changed(step)
        self._results[step.name] = step
        if step.status == RETRYING:
            self._print_above(redact(f"{step.name}: {_described(step, self._retries)}\n"))
        self._drawn = 0.0

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Draw the table, unless it was drawn a moment ago."""
        if self._live is None or self._curves is None:
            return
        self._logs.look()
        if time.monotonic() - self._drawn >= _REFRESH:
            self._drawn = time.monotonic()
            results = [execution.result() for execution in steps.values()]
            width, height = self._live.console.size
            self._live.update(status_table(results, width, self._curves, self._progress, height), refresh=True)

    def noted(self, note: str) -> None:
        """Say it above the table."""
        self._print_above(redact(f"note: {note}\n"))

    def close(self) -> None:
        """Take the table away, and leave one line for each step in its place."""
        self._logs.close()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._curves is not None:
            self._curves.close()
        for step in self._results.values():
            print(redact(f"  {step.name}: {_described(step, self._retries)}"))

    def _print_logs(self, step: str, rank: int, lines: list[str]) -> None:
        self._print_above(marked_lines(step, rank, lines, styled=self._styled))

    def _print_above(self, text: str) -> None:
        """Print whole lines above the table, with their own colours, unbroken."""
        if self._live is not None:
            self._live.console.out(text, highlight=False, end="")


def _described(step: StepResult, retries: int | None) -> str:
    """One line on a step: status, ranks, which attempt of how many if not the first, time, what it measured."""
    further = attempt_words(step, retries) if step.attempts - step.aborts_at_exit > 1 else ""
    where = f"{step.nodes} x {step.processes}" if step.nodes * step.processes > 1 else ""
    if step.status == RUNNING:
        values = f" with {shown_parameters(step.parameters)}" if step.parameters else ""
        return (f"running on {where} ranks{values}" if where else f"running{values}") + _tail(further)
    if step.status == RETRYING:
        return retrying_words(step, retries)
    if step.reused_from:
        return f"reused from {step.reused_from}" + _tail(brief_metrics(step.metrics))
    took = duration_words(step.seconds) if step.started is not None else ""
    if step.aborts_at_exit:
        took += f", attempt repeated {step.aborts_at_exit} times: a rank was killed by SIGABRT while Python ended"
    if step.decision is not None:
        return f"{step.status}, the condition is {str(step.decision).lower()}"
    found = (
        step.status
        + _tail(took)
        + _tail(further if step.restarts.goodput is None else restart_words(step.restarts))
        + _tail(brief_metrics(step.metrics))
        + _tail(best_trial(step.sweep))
    )
    why = step.failure.message if step.failure and step.parameters else ""  # a step's is told at the end
    return found + (f": {why}" if why else "")


def _tail(text: str) -> str:
    return f", {text}" if text else ""


def _print_summary(result: RunResult) -> None:
    """The end of a run for people: the measures, where everything is, and what went wrong."""
    if result.explanation:
        print(result.explanation, file=sys.stderr)
    took = sum(1 for step in result.steps.values() if step.reused_from)
    print(
        f"{result.status} in {duration_words(result.seconds)}"
        + (f", {took} of {len(result.steps)} steps reused" if took else "")
    )
    lines = [(f"{step.name}.{name}", value) for step in result.steps.values() for name, value in _measures(step)]
    lines += [
        (f"{step.name} ran on", f"{ranks} ranks, {with_count(step.nodes, 'node')} x {step.processes}")
        for step in result.steps.values()
        if (ranks := step.nodes * step.processes) > 1 and (step.started is not None or step.reused_from)
    ]
    lines += [
        (f"{step.name}{child}", metrics or status)
        for step in result.steps.values()
        for child, status, _, metrics in child_rows(step.child_runs, brief_metrics)
    ]
    lines += [(name, str(_page(path))) for name, path in result.outputs.items()]
    lines += [("logs", f"{result.run_dir}/steps/*/user_logs"), ("page of the run", str(result.run_dir / "report.html"))]
    if result.status != SUCCEEDED:
        lines += resume_rows(RunFolder(result.run_dir))
    print(aligned_rows(lines, keep_whole=True))


def _measures(step: StepResult) -> Iterator[tuple[str, str]]:
    """What a step has measured, with the trial of a sweep whose primary metric it is."""
    primary = step.sweep.metric if step.sweep else ""
    for name in _MEASURES:
        if name in step.metrics and name != primary:
            yield name, number_words(step.metrics[name])
    if step.sweep is not None and primary in step.metrics:
        yield primary, f"{number_words(step.metrics[primary])}, {best_trial(step.sweep)}"


def _page(path: Path) -> Path:
    """A report's page rather than its folder, since that is what a person opens."""
    return path / "index.html" if (path / "index.html").is_file() else path
