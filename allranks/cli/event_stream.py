"""``--events``: a run as JSON lines for programs, one object for each thing that happens; see docs/command-line.md."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from allranks.cli.line_writer import LineWriter
from allranks.cli.live_progress import LiveProgress
from allranks.cli.log_choice import LogChoice
from allranks.cli.log_stream import LogStream
from allranks.cli.shown_run import OUTPUT, ShownRun
from allranks.errors import StorageError
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, StepFolder
from allranks.local.logged import FollowedFiles, read_executed_curves
from allranks.local.page.document import ended_document
from allranks.local.plan import RunPlan
from allranks.local.result import RUNNING, RunResult, StepResult
from allranks.local.tracking.reading import TrackingReader
from allranks.redaction import redact_document

SCHEMA = 1
"""Raised when a field of an event changes its meaning or goes; new fields and new events do not raise it."""

_NEXT_LOOK = 0.5  # seconds between two looks at one step
_SHARE = 50  # and at least so many times what a look takes


@dataclass(slots=True)
class _Told:
    """What has been told of a step or trial."""

    due: float = 0.0
    progress: tuple[int, int | None] | None = None
    points: set[tuple[str, float, float]] = field(default_factory=set)


class EventObserver(ShownRun):
    """Writes the events of a run to a file, or to the standard output.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, target: str, logs: LogChoice) -> None:
        self._file = None if target == OUTPUT else _opened(target)
        self._writer = LineWriter(self._file or sys.stdout)
        self._logs = LogStream(logs, self._log, is_ready=lambda: self._writer.is_ready)
        self._progress = LiveProgress()
        self._followed = FollowedFiles()
        self._run: RunFolder | None = None
        self._reader: TrackingReader | None = None
        self._running: dict[str, StepResult] = {}
        self._told: dict[str, _Told] = {}

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """The run begins."""
        self._run, self._reader = run, TrackingReader(run.home)
        steps = {
            name: {
                "component": step.component.name,
                "nodes": step.nodes,
                "processes": step.processes,
                "after": list(step.after),
            }
            for name, step in plan.steps.items()
        }
        about = {"run_id": run.id, "name": plan.name, "run_dir": str(run.path), "steps": steps}
        self._tell("run_started", schema=SCHEMA, **about)

    def changed(self, step: StepResult) -> None:
        """A step or trial has another status: what it has printed and logged until then comes before."""
        self._logs.changed(step)
        if step.name in self._running or step.reused_from or step.sweep is not None:
            self._measure(step, is_last=step.status != RUNNING)
        if step.status == RUNNING:
            self._running[step.name] = step
        else:
            self._running.pop(step.name, None)
        self._tell("step", step=step.name, status=step.status, result=step.document())
        self._writer.flush()

    def tick(self, steps: Mapping[str, StepExecution]) -> None:  # noqa: ARG002 the steps that run are known
        """Tell what is new of the steps that run."""
        self._logs.look()
        for step in self._running.values():
            if self._told.setdefault(step.name, _Told()).due <= time.monotonic():
                self._measure(step)

    def stopping(self, seconds: float) -> None:
        """Tell that the ranks were asked to stop."""
        self._tell("stopping", notice_seconds=seconds)

    def close(self) -> None:
        """Tell what is left of the logs."""
        self._logs.close()
        if self._reader is not None:
            self._reader.close()
        self._writer.flush()

    def ended(self, result: RunResult) -> None:
        """The run's document, which ``--json`` prints too."""
        assert self._run is not None  # noqa: S101 it has begun
        document = ended_document(self._run, result.document())
        self._tell("run_ended", status=result.status, exit_code=result.exit_code, result=document)
        self._writer.flush()
        if self._file is not None:
            self._file.close()

    def _measure(self, step: StepResult, *, is_last: bool = False) -> None:
        """Tell how far a step is, and the points of its curves that have not been told."""
        assert self._run is not None  # noqa: S101 it has begun
        assert self._reader is not None  # noqa: S101
        began = time.monotonic()
        told = self._told.setdefault(step.name, _Told())
        executed = StepFolder(step.folder)
        if is_last:
            executed = StepFolder(executed.logs.resolve().parent)  # a link, where it is reused or a sweep
        progress = self._progress.of(executed)
        left = self._progress.left(step.name, step.attempts, progress)
        if progress.step is not None and told.progress != (progress.step, progress.total):
            told.progress = (progress.step, progress.total)
            seconds = None if left is None else round(left, 1)
            self._tell("progress", step=step.name, done=progress.step, total=progress.total, left_seconds=seconds)
        followed = None if is_last else self._followed  # what has ended is read whole: its outputs have just been moved
        for metric, points in read_executed_curves(self._run.home, executed, self._reader, followed).items():
            for at, value in points:
                if (metric, at, value) not in told.points:
                    told.points.add((metric, at, value))
                    self._tell("metric", step=step.name, metric=metric, at=at, value=value)
        ended = time.monotonic()
        told.due = ended + max(_NEXT_LOOK, _SHARE * (ended - began))

    def _log(self, step: str, rank: int, lines: list[str]) -> None:
        about = {"event": "log", "time": _now(), "step": step, "rank": rank}
        self._writer.write("".join([json.dumps({**about, "line": line}) + "\n" for line in lines]))

    def _tell(self, event: str, **values: Any) -> None:
        document = redact_document({"event": event, "time": _now(), **values})
        self._writer.write(json.dumps(document) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _opened(target: str) -> TextIO:
    try:
        return Path(target).open("w", encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"--events {target}: {error.strerror or error}.", "Name a file that can be written."
        ) from error
