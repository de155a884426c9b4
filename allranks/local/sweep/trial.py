"""One trial of a sweep: an execution like that of any step, in a folder of its own, from the sweep's snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allranks.local.cache import Workplace
from allranks.local.execution import StepExecution
from allranks.local.folders import StepFolder
from allranks.local.gang import RankGang
from allranks.local.gang_execution import GangExecution
from allranks.local.result import CANCELLED, SUCCEEDED, StepFailure, StepResult, TrialResult
from allranks.local.sweep.history import MetricHistory
from allranks.local.sweep.search import PlannedSweep, TrialParameters


class TrialExecution(GangExecution):
    """The state of one trial; how it ends is its sweep's concern and not the run's.

    The policy of early termination has looked at ``judged`` intervals. ``recalled`` is the run in which it ended, for a
    failed or cancelled trial that an earlier engine has run.
    """

    limit = "limits.trial_timeout"
    timeout_status = CANCELLED  # as on Azure ML: a limit of the sweep, and not a fault

    def __init__(self, parent: StepExecution, sweep: PlannedSweep, number: int, parameters: TrialParameters) -> None:
        super().__init__(sweep.trial(number, parameters), parent.context, parent)
        self.number = number
        self.parameters = parameters
        self.judged = 0
        self.recalled: str | None = None
        self._search = sweep.search
        self._silence: StepFailure | None = None
        self._history: MetricHistory | None = None
        self._final: list[float] | None = None

    @property
    def reused_from(self) -> str | None:
        """The run in which it has ended, if not in this one."""
        return self.recalled or super().reused_from

    @property
    def variables(self) -> Mapping[str, str]:
        """What this trial tries."""
        return {f"AZUREML_SWEEP_{name}": self.step.literals[name] for name in self.parameters}

    def recall(self, noted: Mapping[str, Any]) -> None:
        """This trial has ended before, without outputs, as the sweep's journal tells."""
        self.key, self.recalled = noted["key"], noted["run"]
        failure = StepFailure(noted["message"])
        self._silence = failure if noted.get("silent") else None
        self.end(noted["status"], failure)

    def clear_up(self) -> None:
        """Remove what a trial that did not succeed has written; its sweep is over and nothing goes on from there."""
        workplace = Workplace(self.context.home, self.key)
        if self.status != SUCCEEDED and self.key and workplace.path.exists() and workplace.acquire():
            workplace.discard()

    def history(self) -> list[float]:
        """What it has logged of the primary metric, one value for each interval."""
        if self._final is not None:
            return self._final
        values = self._logged().values()
        if self.is_finished:
            self._final = values  # a sweep may have a thousand trials, and all are looked at whenever one changes
        return values

    def _logged(self) -> MetricHistory:
        if self._history is None or self._history.folder != self._executed:
            self._history = MetricHistory(self._executed, self.context.tracking.reader, self._search.metric)
        return self._history

    def broken_promise(self, gang: RankGang) -> StepFailure | None:
        """As for any step; and a trial without a trace of the primary metric may have lost it on the way."""
        found = super().broken_promise(gang)
        logged = self._logged()
        if found or logged.values() or logged.is_known_empty():
            return found
        lost = f"ended well but logged no {self._search.metric!r}, neither in outputs/metrics.jsonl nor in MLflow"
        self._silence = StepFailure(lost)
        return self._silence

    @property
    def is_silent(self) -> bool:
        """Whether it ended well and nobody knows its metric."""
        return self._silence is not None and self.failure is self._silence

    def may_retry(self, retries: int | None, gang: RankGang, failure: StepFailure) -> bool:
        """As for any step; but its time is a limit of the sweep, and is not given again."""
        return not gang.timed_out and super().may_retry(retries, gang, failure)

    @property
    def _executed(self) -> StepFolder:
        """Its folder in the run that executed it."""
        if self.source is not None:
            return self.source.folder(self.context.home)
        return self.context.home.run(self.recalled).step(self.step.name) if self.recalled else self.folder

    @property
    def metric(self) -> float | None:
        """The best value that it has logged, as Azure ML ranks trials; None without any."""
        values = self.history()
        return self._search.best(values) if values else None

    def result(self) -> StepResult:
        """What became of it so far, the primary metric first."""
        found = super().result()
        best, name = self.metric, self._search.metric
        others = {key: value for key, value in found.metrics.items() if key != name}
        metrics = found.metrics if best is None else {name: best, **others}
        return replace(found, metrics=metrics, parameters=self.parameters)

    def summary(self) -> TrialResult:
        """Its line in the sweep's table, with the reason why it is not ranked."""
        message = self.failure.message if self.failure else ""
        if self.status == SUCCEEDED:
            message = "" if self.metric is not None else f"logged no finite {self._search.metric!r}"
        return TrialResult(
            number=self.number,
            parameters=self.parameters,
            status=self.status,
            metric=self.metric,
            seconds=round(self.seconds, 3),
            reused_from=self.reused_from,
            folder=self._executed.path,
            message=message,
        )
