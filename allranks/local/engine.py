"""Runs a plan: one thread, one loop that waits for the first thing to happen.

Steps start when what they need has succeeded and the machine has cores left; a gang's first failure ends the gang;
Ctrl-C ends everything, once ranks that can save have done so. Whatever kills the engine, no process stays behind
(``processes.py``) and a finished step stays finished (``cache.py``).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Collection
from contextlib import suppress

from allranks.files import open_missing_streams
from allranks.local import fingerprint, machine, processes
from allranks.local.branches import is_taken, settled_inputs
from allranks.local.cache import StepCache, Workplace, discard_leftovers
from allranks.local.early_end import NOTICE_SECONDS, AgreedStop, abandon_steps
from allranks.local.execution import StepExecution, take_snapshots
from allranks.local.kinds import new_execution
from allranks.local.options import RunObserver, RunOptions, new_run_id
from allranks.local.plan import RunPlan
from allranks.local.private_files import private_umask
from allranks.local.record import RunRecord
from allranks.local.report import RunningPage, write_run_page
from allranks.local.resources.watch import ResourceWatch
from allranks.local.result import (
    CANCELLED,
    FAILED,
    NOT_TAKEN,
    RETRYING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    RunResult,
    StepFailure,
)
from allranks.local.run_context import RunContext
from allranks.local.signals import caught_signals
from allranks.local.tracking.steps import RunTracking
from allranks.local.watch import GangWatch
from allranks.redaction import redact_values

_TICK = 0.25  # seconds between two looks at the metrics while something runs
_LOCK_POLL = 0.1  # seconds between two tries for a step that another engine is running
_TURN = threading.Lock()  # two engines in the threads of one process would take the ends of each other's ranks


def run_plan(plan: RunPlan, options: RunOptions, observer: RunObserver) -> RunResult:
    """Run a plan to its end and say what became of it; runs in several threads take turns.

    Raises:
        StorageError: the runs folder cannot be written.
    """
    open_missing_streams()
    with _TURN, options.home.explained(), private_umask() as umask:
        options.home.prepare()
        discard_leftovers(options.home)
        fingerprint.forget_interpreters()
        for step in plan.steps.values():
            redact_values({**step.environment_variables, **step.inputs}, step.component.command)
        return _Engine(plan, options, observer, umask).run()


class _Engine:
    """One run. The work is in ``run``; the rest are its steps, in the order in which they are used."""

    def __init__(self, plan: RunPlan, options: RunOptions, observer: RunObserver, umask: int) -> None:
        self._plan = plan
        self._options = options
        self._observer = observer
        self._folder = options.home.run(new_run_id())
        self._page = RunningPage(self._folder)
        self._resources = ResourceWatch()
        self._cache = StepCache(options.home, options.reuse_since(plan))
        self._signal: int | None = None
        self._stop = AgreedStop()
        self._tracking = RunTracking(options.home, self._folder, plan.experiment, plan.name)
        context = RunContext(
            options.home, self._folder, plan.experiment, options.python, self._tracking, umask, options.request
        )
        self._context = context
        self._steps = {name: new_execution(step, context) for name, step in plan.steps.items()}
        self._executions = list(self._steps.values())  # and the parts of steps, as they are begun
        self._record = RunRecord(self._folder, plan, options.request.to_document(), self._steps)

    def run(self) -> RunResult:
        """Start what can start, wait, note what happened; again, until every step is finished."""
        self._folder.path.mkdir(parents=True)
        alive, status = self._folder.lock(), FAILED
        try:
            self._begin_tracking()
            self._record.write_request(self._options.definition)
            self._record.write(running=True)  # before what takes time: a run that is killed is listed
            take_snapshots(self._steps.values(), self._folder)
            self._observer.started(self._folder, self._plan)
            result = self._outcome(alive)
            status = result.status
        finally:
            self._tracking.close(status)
            os.close(alive)
        return result

    def _begin_tracking(self) -> None:
        """Make the run's own MLflow run; where that cannot be, nothing is left of the run."""
        try:
            self._tracking.begin()
        except BaseException:
            shutil.rmtree(self._folder.path, ignore_errors=True)
            raise

    def _outcome(self, alive: int) -> RunResult:
        """What became of the run; steps that cannot go on, because the disk is full, have failed."""
        try:
            self._loop()
            result = self._record.write(signal=self._signal)
            write_run_page(self._folder)
        except BrokenPipeError:  # of what is printed: nobody reads it any more
            raise
        except OSError as error:
            return self._give_up(error, alive)
        return result

    def _loop(self) -> None:
        processes.become_subreaper()
        temporary = self._context.temporary
        marker = f"AZUREML_ROOT_RUN_ID={self._folder.id}"
        temporary.open()
        self._tracking.endpoint.warn = self._observer.noted
        self._watch = GangWatch(
            marker, self._executions, self._tracking.endpoint, temporary.remove, self._observer.noted
        )
        try:
            with caught_signals(self._note_signal) as descriptor:
                self._watch.add_signals(descriptor)
                while self._advance():
                    self._wait()
        finally:
            self._watch.close()
            temporary.close()
            self._resources.close()

    # Starting

    def _advance(self) -> bool:
        """Start every step that can start; False when all are finished."""
        for execution in () if self._stop.has_begun else self._executions:  # grows while it is read
            if execution.status == WAITING:
                self._consider(execution)
            elif execution.status == RETRYING and execution.due is not None and execution.due <= time.monotonic():
                self._launch(execution)
            elif not execution.is_finished:
                self._steer(execution)
        return not all(execution.is_finished for execution in self._steps.values())

    def _consider(self, execution: StepExecution) -> None:
        """Skip, reuse or start one waiting step, or leave it waiting."""
        upstream = [self._steps[name] for name in execution.step.after]
        if any(other.is_finished and other.status not in {SUCCEEDED, NOT_TAKEN} for other in upstream):
            self._end(execution, SKIPPED)
        elif all(other.is_finished for other in upstream) and self._settle(execution):
            sources = {other.step.name: other.source for other in upstream if other.source}
            execution.key = execution.key or execution.identify(sources)
            if not self._reuse(execution) and self._may_start(execution) and self._acquire(execution):
                self._launch(execution)

    def _settle(self, execution: StepExecution) -> bool:
        """Whether it is to run, with what the steps before it have told; one that is not has ended."""
        if not is_taken(execution.step, self._steps):
            self._end(execution, NOT_TAKEN)
            return False
        settled = settled_inputs(execution.step, self._steps)
        if isinstance(settled, StepFailure):
            self._end(execution, FAILED, settled)
            return False
        execution.step = settled
        return True

    def _reusable(self, execution: StepExecution) -> bool:
        return self._options.reuses(self._plan) and execution.step.component.is_deterministic

    def _reuse(self, execution: StepExecution) -> bool:
        finished = self._cache.find(execution.key) if self._reusable(execution) else None
        if finished is not None:
            execution.reuse(finished)
            self._changed(execution)
        return finished is not None

    def _may_start(self, execution: StepExecution) -> bool:
        """Whether the cores suffice; a step larger than the machine runs alone."""
        if execution.step.ranks == 0:
            return True
        busy = sum(other.step.ranks for other in self._executions if other.gang is not None)
        return busy == 0 or busy + execution.step.ranks <= machine.usable_cores()

    def _acquire(self, execution: StepExecution) -> bool:
        """Take the step's workplace; False while an equal step, here or in another engine, has it."""
        workplace = Workplace(self._options.home, execution.key)
        if not workplace.acquire():
            return False
        if self._reuse(execution):  # somebody finished it between our look and our lock
            workplace.discard()
            return False
        execution.workplace = workplace
        if not self._options.use_cache or execution.step.name in self._options.anew:
            workplace.prepare([])
        workplace.take_over(self._options.home, execution.continues)
        if note := execution.start_note():
            self._observer.noted(note)
        return True

    def _launch(self, execution: StepExecution) -> None:
        data = execution.step.place_data(lambda output: self._steps[output.step].output_path(output.port))
        failure = execution.begin(data, self._watch.guard, fresh=not self._reusable(execution))
        if failure is not None:
            self._end(execution, FAILED, failure)
            return
        self._watch.add(execution)
        self._changed(execution)
        self._steer(execution)

    def _steer(self, execution: StepExecution) -> None:
        """End the parts of a step that lag behind, begin those that may be, and end the step when all are finished."""
        for part, reason in execution.lagging_parts():
            self._kill(part)
            self._end(part, CANCELLED, part.why_stopped(reason))
        for part in execution.new_parts():
            self._executions.append(part)
            if part.is_finished:
                self._changed(part)
        if execution.is_settled:
            self._conclude(execution)

    # Waiting

    def _wait(self) -> None:
        """Sleep until a rank ends, a time is up or a signal comes, and deal with what happened."""
        for execution in self._watch.wait(self._patience()):
            if execution.gang is not None:  # the end of another step may just have cancelled it
                self._conclude(execution)
        if self._signal is not None:
            self._end_early()
        self._watch.enforce_timeouts()
        self._resources.look(self._executions)
        self._observer.tick(self._steps)
        self._page.look(lambda: self._record.document(self._record.result(running=True)))

    def _patience(self) -> float:
        now = time.monotonic()
        dues = [execution.due - now for execution in self._executions if execution.due is not None]
        blocked = any(e.status == WAITING for e in self._executions) and not any(e.gang for e in self._executions)
        return max(0.0, min([*dues, _LOCK_POLL if blocked else _TICK]))

    # Ending

    def _conclude(self, execution: StepExecution) -> None:
        if execution.gang is not None:
            self._tracking.endpoint.settle()  # its last metrics, before anybody looks at them
            self._resources.finish(execution)
        if self._stop.has_begun:
            self._end(execution, CANCELLED)
            return
        execution.conclude(self._cache, self._options.request.retries)
        self._changed(execution)

    def _kill(self, execution: StepExecution) -> None:
        if execution.gang is not None:
            self._watch.kill(execution.gang)
            self._resources.finish(execution)

    def _end(self, execution: StepExecution, status: str, failure: StepFailure | None = None) -> None:
        execution.end(status, failure)
        self._changed(execution)

    def _changed(self, execution: StepExecution) -> None:
        """Keep and show what has become of a step; the failure of a whole step may end the run."""
        self._observer.changed(execution.keep())
        if execution.parent is not None:
            execution.parent.keep()
        elif execution.status == FAILED and not self._plan.continue_on_failure:
            self._cancel()

    def _end_early(self) -> None:
        """Let those that can save do so, and end all others; in the end end everything."""
        if not self._stop.has_begun:
            spared = self._stop.begin(self._executions)
            if spared:
                self._observer.stopping(NOTICE_SECONDS)
            self._cancel(spared)
        elif self._stop.is_over:
            self._cancel()

    def _cancel(self, spared: Collection[StepExecution] = ()) -> None:
        """Stop everything that is not finished: running steps are killed, waiting ones never start."""
        for execution in self._executions:
            if not execution.is_finished and execution not in spared:
                self._kill(execution)
                self._end(execution, CANCELLED)

    def _give_up(self, error: OSError, alive: int) -> RunResult:
        """End what is not finished without a further look at the disk, then write what can be written of it."""
        os.ftruncate(alive, 0)  # its room was kept for this
        why = f"the runs folder {self._options.home.path} cannot be written: {error.strerror or error}"
        abandon_steps(self._executions, why)
        result = self._record.result()
        with suppress(OSError):
            self._record.keep(result)
            write_run_page(self._folder)
        return result

    def _note_signal(self, number: int) -> None:
        self._signal = number
        self._stop.note_signal()
