"""A sweep step on its way: it begins trials, ends those that fall behind, and takes the outputs of the best.

The trials are its parts, which the engine runs as it runs steps. A journal in the sweep's workplace keeps which trials
there are and how they ended, so that an engine that follows one that was killed resumes with the same: finished trials
are found in the cache, failed and cancelled ones are not repeated, and those that were running start again with their
values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from allranks.errors import CannotRunHereError, StorageError
from allranks.local.cache import FinishedStep, StepCache
from allranks.local.execution import StepExecution
from allranks.local.folders import write_json_file
from allranks.local.guard import ProcessGuard
from allranks.local.past import past_logged, past_sweep
from allranks.local.plan import PlannedStep
from allranks.local.record_shapes import read_json_file
from allranks.local.result import CANCELLED, FAILED, RUNNING, SUCCEEDED, StepFailure, StepResult, SweepResult
from allranks.local.run_context import RunContext
from allranks.local.sweep.sampling import PastTrial, make_sampler
from allranks.local.sweep.search import PlannedSweep, TrialParameters
from allranks.local.sweep.termination import falls_behind
from allranks.local.sweep.trial import TrialExecution


class SweepExecution(StepExecution):
    """The state of a sweep step; ``trials`` are those begun so far, in order."""

    def __init__(self, step: PlannedStep, context: RunContext) -> None:
        assert isinstance(step, PlannedSweep)  # noqa: S101 its kind has planned it
        super().__init__(step, context)
        self.search = step.search
        self.trials: list[TrialExecution] = []
        self._sampler = make_sampler(self.search)
        self._journal: list[dict[str, Any]] = []
        self._fault = ""
        self._deadline: float | None = None
        self._reused: Mapping[str, Any] = {}

    def identify(self, upstream: Mapping[str, FinishedStep], more: Mapping[str, Any] | None = None) -> str:
        """The key: that of what the trials have in common, and the search."""
        return super().identify(upstream, {**(more or {}), "search": self.search.identity()})

    def reuse(self, finished: FinishedStep) -> None:
        """Take the outputs of a finished sweep, and its table of trials."""
        self._reused = read_json_file(finished.folder(self.context.home).state) or {}
        super().reuse(finished)

    # Trials

    def begin(self, data: Mapping[str, Path], guard: ProcessGuard, *, fresh: bool) -> StepFailure | None:  # noqa: ARG002
        """Start, or resume with the trials that an earlier engine noted."""
        try:
            self.context.tracking.begin_step(self.step.name)
        except StorageError as error:
            return StepFailure(f"could not be started: {error}")
        self.attempts = 1
        self._started = time.monotonic()
        self._deadline = None if self.search.timeout is None else self._started + self.search.timeout
        if not fresh:
            self._journal = read_json_file(self._journal_file) or []
        self.status = RUNNING
        return None

    @property
    def _is_out_of_time(self) -> bool:
        """Whether the time for the whole sweep is up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def new_parts(self) -> list[StepExecution]:
        """The trials that may be begun now, and those of the journal that come before them and are finished."""
        found: list[StepExecution] = []
        while not self._is_out_of_time and not self._fault and len(self.trials) < self.search.trials:
            if sum(not trial.is_finished for trial in self.trials) >= self.search.at_once:
                break
            trial = self._recalled() or self._chosen()
            if trial is None:
                break
            self.trials.append(trial)
            found.append(trial)
        if found:
            self._note()
        return found

    def _trial(self, parameters: TrialParameters) -> TrialExecution:
        """The next trial, which tries these values."""
        assert isinstance(self.step, PlannedSweep)  # noqa: S101 its kind has planned it
        return TrialExecution(self, self.step, len(self.trials), parameters)

    def _recalled(self) -> TrialExecution | None:
        """The next trial of the journal."""
        if len(self.trials) >= len(self._journal):
            return None
        entry = self._journal[len(self.trials)]
        trial = self._trial(entry["parameters"])
        if entry["status"] in {FAILED, CANCELLED}:
            trial.recall(entry)
        return trial

    def _chosen(self) -> TrialExecution | None:
        """The next trial of the sampler."""
        trials = self.trials
        past = [PastTrial(one.parameters, one.metric if one.is_finished else None, one.is_finished) for one in trials]
        try:
            parameters = self._sampler.next(past)
        except CannotRunHereError as error:
            self._fault = str(error)
            return None
        return None if parameters is None else self._trial(parameters)

    def lagging_parts(self) -> list[tuple[StepExecution, str]]:
        """The running trials to be ended early, each with the reason."""
        if self._is_out_of_time:
            reason = f"the sweep's limits.timeout = {self.search.timeout:g} s was up"
            return [(trial, reason) for trial in self.trials if not trial.is_finished]
        if self.search.policy is None:
            return []
        return [(trial, why) for trial in self.trials if trial.gang is not None and (why := self._judge(trial))]

    def _judge(self, trial: TrialExecution) -> str:
        """Apply the policy at each interval that the trial has come to since the last look."""
        history = trial.history()
        others = [other.history() for other in self.trials if other is not trial]
        while trial.judged < len(history):
            trial.judged += 1
            assert self.search.policy is not None  # noqa: S101 lagging_parts has looked
            why = falls_behind(self.search.policy, self.search.goal, history[: trial.judged], others)
            if why:
                return why
        return ""

    # The end

    @property
    def is_settled(self) -> bool:
        """Whether every trial is finished and none will follow."""
        if any(not trial.is_finished for trial in self.trials):
            return False
        begun = len(self.trials)
        complete = begun >= self.search.trials or (self._sampler.exhausted and begun >= len(self._journal))
        return complete or self._is_out_of_time or bool(self._fault)

    @property
    def best(self) -> TrialExecution | None:
        """The succeeded trial with the best metric; the first of equal ones."""
        metrics = {trial: trial.metric for trial in self.trials if trial.status == SUCCEEDED}
        ranked = {trial: metric for trial, metric in metrics.items() if metric is not None}
        better = max if self.search.goal == "maximize" else min
        return better(ranked, key=ranked.__getitem__, default=None)

    def conclude(self, records: StepCache, retries: int | None) -> None:  # noqa: ARG002 each trial has had its own
        """Make the best trial's outputs the step's; the step has failed when there is no such trial."""
        best = None if self._fault else self.best
        if best is None or any(trial.is_silent for trial in self.trials):
            self.end(FAILED, self._no_best())
            return
        assert best.source is not None  # noqa: S101 it has succeeded
        assert self.workplace is not None  # noqa: S101 the engine acquired it
        # The same outputs, so the same execution for the steps that read them.
        self._take(best.folder, FinishedStep(self.context.run.id, self.step.name, best.source.execution))
        self.remember(records, self.folder.outputs)
        self.register_outputs(self.folder)
        for trial in self.trials:
            trial.clear_up()
        self.workplace.discard()
        self.end(SUCCEEDED)

    def _no_best(self) -> StepFailure:
        metric = self.search.metric
        if self._fault:
            return StepFailure(self._fault)
        lost = [_shown(trial) for trial in self.trials if trial.is_silent]
        if lost:
            return StepFailure(
                f"no best trial can be told: {', '.join(lost)} ended well but logged no {metric!r}, neither in "
                "outputs/metrics.jsonl nor in MLflow. Log it in every trial, NaN where there is none; the next run "
                "repeats only these"
            )
        silent = [trial for trial in self.trials if trial.status == SUCCEEDED]
        if silent:
            logged = sorted({name for trial in silent for name in trial.result().metrics})
            message = f"no trial logged the primary metric {metric!r}, neither in outputs/metrics.jsonl nor in MLflow"
            return StepFailure(f"{message}; logged were: {', '.join(logged) or 'none'}")
        if not self.trials:
            return StepFailure("no trial was begun before the sweep's limits.timeout was up")
        first = next((trial for trial in self.trials if trial.status == FAILED), self.trials[0])
        failure = first.failure or StepFailure("cancelled")
        message = f"none of {len(self.trials)} trials succeeded; the first, {_shown(first)}: {failure.message}"
        return replace(failure, message=message)

    def end(self, status: str, failure: StepFailure | None = None) -> None:
        """Nothing more will happen; a sweep that failed as a whole starts with new trials next time."""
        self._sampler.close()
        if status == FAILED and self.workplace is not None:
            self._journal_file.unlink(missing_ok=True)
        super().end(status, failure)

    # What is kept and shown

    @property
    def _journal_file(self) -> Path:
        assert self.workplace is not None  # noqa: S101 the engine acquires it first
        return self.workplace.journal

    def keep(self) -> StepResult:
        """As for any step; what is shown of a running sweep's trials is noted before, so that no end of it undoes it.

        Whoever reads the journal is not told of what was just stopped with the sweep.
        """
        if self.status == RUNNING:
            self._note()
        return super().keep()

    def _note(self) -> None:
        """Keep which trials there are and how they ended."""
        noted = [_entry(trial) for trial in self.trials] + self._journal[len(self.trials) :]
        if noted != self._journal:
            self._journal = noted
            write_json_file(self._journal_file, noted)

    def result(self) -> StepResult:
        """What became of it so far, with its trials; what was logged is the best trial's."""
        found = super().result()
        if self._reused:
            return replace(found, sweep=past_sweep(self._reused), **past_logged(self._reused))
        search, best = self.search, self.best
        table = tuple(trial.summary() for trial in self.trials)
        sweep = SweepResult(search.goal, search.metric, search.trials, table, best.number if best else None)
        if best is None:
            return replace(found, sweep=sweep, metrics={})
        logged = best.result()
        return replace(
            found,
            sweep=sweep,
            metrics=logged.metrics,
            params=logged.params,
            tags=logged.tags,
            child_runs=logged.child_runs,
        )

    def preview(self, published: Mapping[str, Path], finished: FinishedStep | None) -> dict[str, Any]:
        """What its trials have in common, with a name for each value that differs, and the search."""
        trial = self._trial({name: f"<{name}>" for name in self.search.space})
        return {**trial.preview(published, finished), "sweep": self.search.identity()}


def _shown(trial: TrialExecution) -> str:
    values = ", ".join(f"{name}={value}" for name, value in trial.parameters.items())
    return f"{trial.step.name} ({values})"


def _entry(trial: TrialExecution) -> dict[str, Any]:
    return {
        "key": trial.key,
        "parameters": dict(trial.parameters),
        "status": trial.status if trial.is_finished else "",
        "run": trial.recalled or trial.context.run.id,
        "message": trial.failure.message if trial.failure else "",
        "silent": trial.is_silent,
    }
