"""What became of a run: one object that the command line prints, run.json keeps and the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from allranks.local.folders import RunsHome
from allranks.local.goodput import RestartSummary
from allranks.local.metrics_file import MetricsEntry, MetricsFollower, metrics_document, read_end, read_metrics
from allranks.local.tracking.reading import ChildRun, child_runs_document
from allranks.log_text import clean_text
from allranks.redaction import redact
from allranks.wording import run_seconds

SUCCEEDED, FAILED, SKIPPED, CANCELLED = "succeeded", "failed", "skipped", "cancelled"
NOT_TAKEN = "not taken"
WAITING, RUNNING, RETRYING = "waiting", "running", "retrying"

_MOST_STEPS = 2**63  # that are believed


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The first failure of a step.

    Attributes:
        message: what ended it: ``rank 1 on node 0 ended with exit code 3``.
        rank: the rank that failed first; None when the step has no ranks or failed before any started.
        node: the emulated node that it ran on; ``log`` is its log file, and ``last_lines`` the end of that.
        cause: of what kind it is, as in ``failure_cause.py``; empty of a start that failed, and of ``aborts.py``.
    """

    message: str
    rank: int | None = None
    node: int | None = None
    log: Path | None = None
    last_lines: tuple[str, ...] = ()
    cause: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "log": str(self.log) if self.log else None, "last_lines": list(self.last_lines)}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What became of one trial of a sweep.

    Attributes:
        number: from 0, in the order in which they were begun.
        status: as of a step; ``cancelled`` for one that was ended early or ran out of time.
        metric: the best value of the primary metric that it logged, or None.
        reused_from: the run in which it was executed, or None for this one.
        message: why it failed or was cancelled.
    """

    number: int
    parameters: Mapping[str, str | int | float | bool]
    status: str
    metric: float | None
    seconds: float
    reused_from: str | None
    folder: Path
    message: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        plain = replace(self, parameters=dict(self.parameters))
        return {**asdict(plain), "folder": str(self.folder)}


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What became of the trials of a sweep step.

    Attributes:
        goal: ``minimize`` or ``maximize``.
        metric: the primary metric's name.
        most: how many trials there will be at most.
        best: the number of the trial whose outputs are the step's, or that would be now; None without any.
    """

    goal: str
    metric: str
    most: int
    trials: tuple[TrialResult, ...]
    best: int | None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "goal": self.goal,
            "primary_metric": self.metric,
            "max_total_trials": self.most,
            "best_trial": self.best,
            "trials": [trial.document() for trial in self.trials],
        }


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one step.

    Attributes:
        status: succeeded, failed, skipped (what it needs has failed), not taken (a condition was for other steps) or
            cancelled (waiting, running or retrying while the run goes on).
        started: seconds since the run began, or None.
        seconds: how long it took, all attempts and pauses included; 0 for a reused step.
        reused_from: the run whose outputs were taken, or None.
        processes: ranks on each node.
        metrics: the last value of everything that was logged, to ``outputs/metrics.jsonl``, MLflow or
            TensorBoard's files; see ``logged.py``. May be NaN or infinite.
        params: what was logged as such to MLflow, secrets blotted out.
        tags: those that the script has set in MLflow, secrets blotted out.
        aborts_at_exit: those of the attempts that were repeated because Python's end had killed a rank; see
            ``aborts.py``.
        sweep: the trials of a sweep step; None for other steps.
        parameters: the values that a trial tries; empty for steps.
        mlflow_run_id: the MLflow run that it has logged to, or the step that it reuses; None before it starts. See
            ``tracking/reading.py``.
        decision: what an if_else step has decided; None for other steps.
        child_runs: the MLflow runs that its script has made itself, nested in the step's or beside it, oldest first.
        restarts: what its attempts came to; ``next_attempt`` is in so many seconds, while it is retrying.
    """

    name: str
    status: str
    started: float | None
    seconds: float
    reused_from: str | None
    attempts: int
    nodes: int
    processes: int
    folder: Path
    outputs: Mapping[str, Path]
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: StepFailure | None = None
    component: str = ""
    after: tuple[str, ...] = ()
    sweep: SweepResult | None = None
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    aborts_at_exit: int = 0
    mlflow_run_id: str | None = None
    decision: bool | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    child_runs: tuple[ChildRun, ...] = ()
    restarts: RestartSummary = field(default_factory=RestartSummary)
    next_attempt: float | None = None

    @property
    def logs(self) -> list[Path]:
        """The logs of its ranks, in their order; those of a reused step are of the run that executed it."""
        return sorted((self.folder / "user_logs").glob("*.txt"), key=lambda path: (len(path.name), path.name))

    def document(self) -> dict[str, Any]:
        """As JSON, the form that `allranks run --json` prints."""
        return {
            "status": self.status,
            "seconds": self.seconds,
            "reused": self.reused_from is not None,
            "reused_from": self.reused_from,
            "attempts": self.attempts,
            **self.restarts.document(),
            "nodes": self.nodes,
            "processes": self.processes,
            "outputs": {port: str(path) for port, path in self.outputs.items()},
            "metrics": metrics_document(self.metrics),
            "params": dict(self.params),
            "tags": dict(self.tags),
            "mlflow_run_id": self.mlflow_run_id,
            "child_runs": child_runs_document(self.child_runs),
            "started": self.started,
            "component": self.component,
            "after": list(self.after),
            "folder": str(self.folder),
            "failure": self.failure.document() if self.failure else None,
            **({"parameters": dict(self.parameters)} if self.parameters else {}),
            **({"aborts_at_exit": self.aborts_at_exit} if self.aborts_at_exit else {}),
            **(self.sweep.document() if self.sweep else {}),
            **({} if self.decision is None else {"decision": self.decision}),
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    """What became of a run; ``exit_code`` is the command line's.

    It has ``started`` and ``ended`` so many seconds after 1970; None of one that has not. One whose engine was killed
    has ended when the last of its files was written.
    """

    run_id: str
    status: str
    run_dir: Path
    steps: Mapping[str, StepResult]
    outputs: Mapping[str, Path] = field(default_factory=dict)
    signal: int | None = None
    started: float | None = None
    ended: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it took; None for one that has not ended."""
        return run_seconds({"started": self.started, "ended": self.ended})

    @property
    def failures(self) -> Mapping[str, StepFailure]:
        """Why steps failed, by step; empty if none has."""
        return {name: step.failure for name, step in self.steps.items() if step.status == FAILED and step.failure}

    @property
    def explanation(self) -> str:
        """Why steps failed, with the ends of their logs and where all of them are; empty if none has."""
        return "\n".join(line for name, failure in self.failures.items() for line in self._explain(name, failure))

    def _explain(self, step: str, failure: StepFailure) -> Iterator[str]:
        yield redact(f"error: step {step}: {failure.message}")
        yield from (f"  | {line}" for line in failure.last_lines)
        if failure.log is not None:
            yield f"  log: {failure.log}"
            yield f"  all logs: allranks runs logs {self.run_id} {step}{self.elsewhere}"

    @property
    def elsewhere(self) -> str:
        """The option with which a command finds this run, if it is not in this folder's ``.allranks``."""
        return RunsHome(self.run_dir.parents[1]).option

    @property
    def exit_code(self) -> int:
        """0 when all succeeded, 1 when a step failed, 128 + n when signal n stopped the run."""
        if self.signal is not None:
            return 128 + self.signal
        return 0 if self.status == SUCCEEDED else 1

    def document(self) -> dict[str, Any]:
        """As JSON, the form that `allranks run --json` prints."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "run_dir": str(self.run_dir),
            "started": self.started,
            "ended": self.ended,
            "outputs": {name: str(path) for name, path in self.outputs.items()},
            "steps": {name: step.document() for name, step in self.steps.items()},
        }


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step is by what rank 0 logs: steps done, of how many if said, the last value of each metric."""

    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_progress(metrics_file: Path, *, tail: bool = False) -> StepProgress:
    """What a metrics.jsonl says, if it is there; ``tail`` reads its last 16 KiB only, enough for a live table."""
    return _progress_after(StepProgress(), read_metrics(metrics_file, 16384 if tail else None))


class ProgressLook:
    """What a metrics.jsonl says, for who looks again and again: no line is read twice."""

    def __init__(self, metrics_file: Path) -> None:
        self._follower = MetricsFollower(metrics_file)
        self._progress = StepProgress()

    def look(self) -> StepProgress:
        """As ``read_progress``."""
        entries, is_anew = self._follower.read_new()
        self._progress = _progress_after(StepProgress() if is_anew else self._progress, entries)
        return self._progress


def _progress_after(before: StepProgress, entries: Iterable[MetricsEntry]) -> StepProgress:
    step, total, metrics = before.step, before.total, dict(before.metrics)
    for entry in entries:
        done, of = _count(entry.step), _count(entry.total)
        step, total = step if done is None else done, of or total
        metrics |= entry.metrics
    return StepProgress(step, total, metrics)


def _count(value: object) -> int | None:
    """A number of steps; None for what is none, since anybody may write such a file."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _MOST_STEPS else None


def last_lines(log: Path, count: int = 20, most: int = 16384) -> tuple[str, ...]:
    """The end of a log as people are shown it, secrets blotted out: at most so many lines of the last so many bytes."""
    text = clean_text(read_end(log, most).decode(errors="replace"), styled=False).rstrip()
    return tuple(redact("\n".join(text.splitlines()[-count:])).splitlines())
