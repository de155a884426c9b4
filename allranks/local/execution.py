"""One step on its way, whatever its kind: the key that it is known by, its files, what has become of it."""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from allranks.local import cache, fingerprint, snapshot
from allranks.local.assets import register_asset
from allranks.local.attempts import StepAttempt, attempt_of
from allranks.local.cache import FinishedStep, StepCache, Workplace
from allranks.local.event_folders import event_places
from allranks.local.folders import RunFolder, StepFolder, write_json_file
from allranks.local.gang import RankGang
from allranks.local.goodput import summarise_attempts
from allranks.local.guard import ProcessGuard
from allranks.local.logged import LoggedFiles, LoggedValues, read_logged_values
from allranks.local.page.changes import changed_files
from allranks.local.plan import PlannedStep
from allranks.local.record_shapes import read_json_file
from allranks.local.result import (
    CANCELLED,
    FAILED,
    NOT_TAKEN,
    RETRYING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    StepFailure,
    StepResult,
)
from allranks.local.run_context import RunContext
from allranks.local.tracking.jobs import job_run_id
from allranks.redaction import redact_document

_KEY_FORMAT = 3  # raised when a change of the engine makes the outputs of older versions unusable


class StepExecution(ABC):
    """The state of one step during a run; the engine decides, this object does.

    Attributes:
        parent: the step that has begun this one as a part of itself; what becomes of it is then that step's concern.
        source: the execution whose outputs stand for this step's, once there is one.
        gang: the ranks of the running attempt; None for a kind of step that runs as parts.
        files: its snapshot, which is its parent's if the step is a part.
        step: as planned, and once the steps that it comes ``after`` have ended, with what these have told.
        decision: what it has decided, where that is what it does.
        aborts_at_exit: attempts that were repeated because Python's end had killed a rank; see ``aborts.py``.
        past_attempts: those that have ended, the oldest first.
        data_sizes: of the data that came from outside of the run, what it was when an attempt began.
        shown_variables: what its first process got beside the caller's own variables, secrets blotted out.
        identified: the files of the data from outside of the run, as the key has them.
        comes_back: whether a failed attempt would have been followed by another one if nobody had said how often.
        identity: what the key was made of, a digest for each part, by what a message calls it.
        continues: the key of another execution whose checkpoints it starts from, which counts for its own; or empty.
        before: what the run that is resumed has kept of it in step.json; empty where it is not to be resumed.
        due: when the attempt's time is up, or when the next attempt may start (monotonic seconds).
    """

    def __init__(self, step: PlannedStep, context: RunContext, parent: StepExecution | None = None) -> None:
        self.step = step
        self.after = step.after
        self.context = context
        self.parent = parent
        self.folder = context.run.step(step.name)
        self.status = WAITING
        self.attempts = 0
        self.aborts_at_exit = 0
        self.source: FinishedStep | None = None
        self.failure: StepFailure | None = None
        self.decision: bool | None = None
        self.gang: RankGang | None = None
        self.workplace: Workplace | None = None
        self.comes_back = True
        self.due: float | None = None
        self.past_attempts: list[StepAttempt] = []
        self.shown_variables: Mapping[str, str] = {}
        self.data_sizes: Mapping[str, Any] = {}
        self.key = ""
        self.identity: Mapping[str, str] = {}
        self.continues = ""
        self.before: Mapping[str, Any] = {}
        self.identified: dict[Path, list[list[str | int]]] = {}
        self.command = ""
        self.files: list[snapshot.SnapshotFile] = parent.files if parent else snapshot.snapshot_files(step.component)
        self._snapshot_hash = ""
        self._started: float | None = None
        self._ended: float | None = None
        self._last_logged: LoggedValues | None = None
        self._logged_files: LoggedFiles | None = None

    # What each kind does in its own way

    @abstractmethod
    def begin(self, data: Mapping[str, Path], guard: ProcessGuard, *, fresh: bool) -> StepFailure | None:
        """Start, or resume where an earlier run left off unless ``fresh``; why it cannot, if so.

        The data inputs are where ``data`` says; the guard is told of every process.
        """

    @abstractmethod
    def preview(self, published: Mapping[str, Path], finished: FinishedStep | None) -> dict[str, Any]:
        """What a dry run shows of it, were the outputs in ``published`` and the execution ``finished`` to be reused."""

    def why_stopped(self, reason: str) -> StepFailure:
        """What is kept of a part that was stopped for this reason."""
        return StepFailure(reason)

    def lagging_parts(self) -> list[tuple[StepExecution, str]]:
        """The parts that are to be cancelled, each with the reason."""
        return []

    def new_parts(self) -> list[StepExecution]:
        """The parts that may be begun now, and those before them that an earlier run has ended."""
        return []

    @property
    def is_settled(self) -> bool:
        """Whether all of its parts have ended and none will follow; never for a step without parts."""
        return False

    @abstractmethod
    def conclude(self, records: StepCache, retries: int | None) -> None:
        """End it, or put it off for one of the ``retries``: the last of its ranks or of its parts has ended.

        With None it is put off where it is certain that it goes on from where it was: see ``restarts.py``.
        """

    # What all have in common

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in {SUCCEEDED, FAILED, SKIPPED, NOT_TAKEN, CANCELLED}

    @property
    def reused_from(self) -> str | None:
        """The run whose outputs it took, or an equal step of this one's; None if it has run itself."""
        return self.source.run_id if self.source is not None and self.attempts == 0 else None

    @property
    def seconds(self) -> float:
        """How long it has taken so far; 0 before it starts."""
        return 0.0 if self._started is None else (self._ended or time.monotonic()) - self._started

    @property
    def snapshot_hash(self) -> str:
        """The sha256 of its snapshot: of the run's own copy once that is taken, else of the user's files."""
        if self.parent is not None:
            return self.parent.snapshot_hash
        if not self._snapshot_hash:
            self._snapshot_hash = snapshot.content_hash(self.files)
        return self._snapshot_hash

    def take_snapshot(self) -> None:
        """Copy its files into the run, and hash the copy: the user's own files may change at any moment."""
        self.folder.path.mkdir(parents=True)
        self.files = snapshot.copy_snapshot(self.files, self.folder.snapshot)
        self._snapshot_hash = snapshot.copied_hash(self.files, self.folder.snapshot)

    @property
    def readable_files(self) -> list[snapshot.SnapshotFile]:
        """Its files, each from the run's copy if the user has deleted the original."""
        copies = self.folder.snapshot
        return [
            one if one.source.exists() else replace(one, source=copies / one.path, members=None) for one in self.files
        ]

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return self.step.python or self.context.python

    def output_path(self, port: str) -> Path:
        """Where an output is, once the step has succeeded."""
        return (self.folder.outputs / port).resolve()

    @property
    def mlflow_run_id(self) -> str | None:
        """The MLflow run that holds what it has logged, or what the step that it reuses has; None before it starts."""
        if self.source is not None:
            return job_run_id(self.source.run_id, self.source.step)
        return job_run_id(self.context.run.id, self.step.name) if self.attempts else None

    def identify(self, upstream: Mapping[str, FinishedStep], more: Mapping[str, Any] | None = None) -> str:
        """The key: equal for two executions that must give the same outputs; those ``upstream`` wrote the inputs.

        What a kind of step counts besides is ``more``.
        """
        step = self.step
        inputs: dict[str, object] = {**step.literals}
        self.identified = {path: fingerprint.tree_fingerprint(path) for path in step.paths.values()}
        inputs |= {name: [str(path), self.identified[path]] for name, path in step.paths.items()}
        inputs |= {name: [upstream[output.step].execution, output.port] for name, output in step.bound.items()}
        parts = {
            "code": self.snapshot_hash,
            "command": step.component.command,
            **{f"input {name}": value for name, value in inputs.items()},
            "outputs": {name: [output.type, output.mode] for name, output in step.outputs.items()},
            "environment": str(step.component.environment),
            "interpreter": step.host.identity(self.python),
            "environment variables": dict(step.environment_variables),
            "ranks": [step.distribution, step.nodes, step.processes, step.parameter_servers],
            "variant": step.variant,
            **(more or {}),
        }
        self.identity = {name: fingerprint.json_digest([_KEY_FORMAT, name, part]) for name, part in parts.items()}
        if self.parent is None and self.context.request.resumes:
            self.before = read_json_file(self.folder_before.state) or {}
        if not self.changes:
            self.continues = self.before.get("continues", "")
        elif self.context.request.keep_checkpoints and self.before and self._saved_before:
            self.continues = self.before.get("key", "")
        return fingerprint.json_digest([self.identity, self.continues])

    @property
    def folder_before(self) -> StepFolder:
        """Its folder in the run that is resumed, if one is and has the step."""
        return self.context.home.run(self.context.request.resumes).step(self.step.name)

    @property
    def _saved_before(self) -> list[Path]:
        return cache.saved_by(self.context.home.run(self.context.request.resumes), self.step.name)

    @property
    def changes(self) -> list[str]:
        """What of the key is not as it was in the run that is resumed, as a message calls it."""
        old, new = self.before.get("identity", {}), self.identity
        return sorted(part for part in {**old, **new} if old.get(part) != new.get(part))

    def start_note(self) -> str:
        """Say what it starts from, if it was begun in the run that is resumed and starts again."""
        request, name, changes = self.context.request, self.step.name, self.changes
        if not self.before.get("key") or self.workplace is None:
            return ""
        files = changed_files(self.folder_before.snapshot, self.folder.snapshot) if "code" in changes else ()
        code = f"code ({', '.join([file['path'] for file in files[:4]] + ['…'] * (len(files) > 4))})"
        changed = " and ".join(code if part == "code" else part for part in changes)
        why = f"its {changed} changed since run {request.resumes}" if changes else ""
        saved = self._saved_before
        journal = [path for path in (self.workplace.journal,) if path.exists()]
        own = self.workplace.find_saved(self.step.kept_outputs) or journal
        if here := saved if request.script and request.keep_checkpoints else own:
            return f"step {name} resumes from {here[-1]}{', although ' if why else ''}{why}."
        command = f"allranks run --resume {request.resumes}{self.context.home.option} --keep-checkpoints"
        offer = f" It saved {saved[-1]}; to start from that: {command}" if saved else " Nothing was saved."
        if not saved and (self.before.get("status") == SUCCEEDED or "trials" in self.before):
            offer = " No checkpoint of a finished step or a sweep is kept." if request.keep_checkpoints else ""
        return f"step {name} starts from the beginning{': ' if why else ''}{why}.{offer}"

    def reuse(self, finished: FinishedStep) -> None:
        """Take the outputs and logs of a finished execution."""
        folder = finished.folder(self.context.home)
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self._take(folder, finished)
        self.register_outputs(folder)  # an engine may have been killed before it could
        self.end(SUCCEEDED)

    def _take(self, folder: StepFolder, finished: FinishedStep) -> None:
        """Let another step's outputs and logs stand for this one's."""
        cache.link_folder(self.folder.outputs, folder.outputs)
        cache.link_folder(self.folder.logs, folder.logs)
        self.source = finished

    def remember(self, records: StepCache, outputs: Path) -> None:
        """Let later runs find its outputs, which lie in this folder or are about to."""
        assert self.source is not None  # noqa: S101 it has succeeded
        if self.step.component.is_deterministic:
            records.remember(self.key, self.source, outputs, self.step.outputs)

    def register_outputs(self, folder: StepFolder) -> None:
        """Keep the outputs that have a name as assets; they lie in the folder of the step that wrote them."""
        for name, output in self.step.outputs.items():
            if output.asset_name:
                place = folder.outputs / name
                register_asset(self.context.home, output.asset_name, output.asset_version, place, output.type)

    def end(self, status: str, failure: StepFailure | None = None) -> None:
        """Nothing more will happen to this step."""
        self.status, self.failure, self.gang, self.due = status, failure, None, None
        self._ended = time.monotonic()
        if self.workplace is not None:
            self.workplace.release()
        if self.attempts:
            self.context.tracking.end_step(self.step.name, status)

    def keep(self) -> StepResult:
        """Write step.json."""
        result = self.result()
        self.folder.path.mkdir(parents=True, exist_ok=True)
        known = {"key": self.key, "identity": self.identity, "continues": self.continues}
        document = {**result.document(), **self._details(), **known, "kept_outputs": self.step.kept_outputs}
        write_json_file(self.folder.state, redact_document(document))
        return result

    def _details(self) -> dict[str, Any]:
        """What only step.json has: how it was started, and with what."""
        now = [attempt_of(self.gang, self.context.began)] if self.gang is not None else []
        return {
            "command": self.command,
            "inputs": {name: str(value) for name, value in self.step.inputs.items()},
            "input_sources": self.step.source_documents,
            "data": dict(self.data_sizes),
            "variables": dict(self.shown_variables),
            "environment": self.step.component.environment.described,
            "python": str(self.python),
            "snapshot_hash": self.snapshot_hash,
            "code": [str(path) for path in (self.step.component.code, *self.step.component.includes) if path],
            "attempt_times": [attempt.document() for attempt in (*self.past_attempts, *now)],
        }

    def result(self) -> StepResult:
        """What became of it so far."""
        source = self.source
        logged = self._logged_values()
        return StepResult(
            name=self.step.name,
            status=self.status,
            started=None if self._started is None else round(self._started - self.context.began, 3),
            seconds=round(self.seconds, 3),
            reused_from=self.reused_from,
            attempts=self.attempts,
            aborts_at_exit=self.aborts_at_exit,
            nodes=self.step.nodes,
            processes=self.step.processes,
            folder=self.folder.path,
            outputs={name: self.folder.outputs / name for name in self.step.outputs} if source else {},
            metrics=logged.metrics,
            params=logged.params,
            tags=logged.tags,
            child_runs=logged.child_runs,
            failure=self.failure,
            component=self.step.component.name,
            after=self.after,
            mlflow_run_id=self.mlflow_run_id,
            decision=self.decision,
            next_attempt=max(0.0, (self.due or 0.0) - time.monotonic()) if self.status == RETRYING else None,
            restarts=summarise_attempts(
                [(one.seconds, one.cause, one.steps) for one in self.past_attempts], self.attempts
            ),
        )

    def _logged_values(self) -> LoggedValues:
        """What it has logged so far, or what the step that it reuses has."""
        if self._last_logged is not None:
            return self._last_logged
        if self._started is None and self.source is None:  # a page of many waiting steps asks each of them
            return LoggedValues()
        folder = self.source.folder(self.context.home) if self.source else self.folder
        places = event_places(self.context.home, folder, self.key)
        if self._logged_files is None or self._logged_files.places != tuple(places) or self.is_finished:
            self._logged_files = LoggedFiles(folder, places)  # what has ended is read whole: its outputs were moved
        found = read_logged_values(self._logged_files, self.mlflow_run_id, self.context.tracking.reader)
        if self.is_finished:
            self._last_logged, self._logged_files = found, None  # a run is looked at several times a second
        return found


def take_snapshots(executions: Iterable[StepExecution], run: RunFolder) -> None:
    """Copy the files of all steps when the run begins: whoever edits them meanwhile edits the next run.

    When that fails nothing has begun yet, and nothing is left of the run.
    """
    try:
        for execution in executions:
            execution.take_snapshot()
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
