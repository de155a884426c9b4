"""Runs a plan: one thread, one loop that waits for the first thing to happen.

Steps start when what they need has succeeded and the machine has cores left; a gang's first failure ends the gang;
Ctrl-C ends everything. Whatever kills the engine, no process stays behind (``processes.py``) and a finished step
stays finished (``cache.py``).
"""

from __future__ import annotations

import os
import selectors
import time
from contextlib import suppress
from pathlib import Path

from allranks.errors import StorageError
from allranks.local import machine, processes
from allranks.local.cache import Cache, Finished, Workplace, clear_up
from allranks.local.execution import Execution, Job, abandon, take_snapshots
from allranks.local.folders import private_files
from allranks.local.gang import Gang
from allranks.local.guard import Guard
from allranks.local.options import Observer, Options, new_run_id
from allranks.local.plan import Plan, StepOutput
from allranks.local.record import RunRecord
from allranks.local.report import RunningPage, write_report
from allranks.local.result import CANCELLED, FAILED, RETRYING, RUNNING, SKIPPED, SUCCEEDED, WAITING, Failure, RunResult
from allranks.local.signals import caught_signals
from allranks.local.stores import Stores
from allranks.local.sweep.sweep import Sweep, execution_of
from allranks.local.sweep.trial import Trial

TICK = 0.25  # seconds between two looks at the metrics while something runs
STACKS = 0.5  # seconds that hung ranks get to write their stacks
SERVERS = 2.0  # seconds that parameter servers get to end by themselves after the last worker
LOCK_POLL = 0.1  # seconds between two tries for a step that another engine is running
LONGEST_PAUSE = 30.0  # seconds; the pause before a retry doubles from one second up to this


def run(plan: Plan, options: Options, observer: Observer) -> RunResult:
    """Run a plan to its end and say what became of it.

    Raises:
        StorageError: the runs folder cannot be written.
    """
    options.home.prepare()
    with options.home.explained(), private_files() as umask:
        clear_up(options.home)
        return Engine(plan, options, observer, umask).run()


class Engine:
    """One run. The work is in ``run``; the rest are its steps, in the order in which they are used."""

    def __init__(self, plan: Plan, options: Options, observer: Observer, umask: int) -> None:
        self._plan = plan
        self._options = options
        self._observer = observer
        self._folder = options.home.run(new_run_id())
        self._page = RunningPage(self._folder)
        self._began = time.monotonic()
        self._cache = Cache(options.home, options.reuse_since)
        self._ports = machine.Ports()
        self._selector = selectors.DefaultSelector()
        self._signal: int | None = None
        self._timed_out: set[str] = set()
        self._stores, environ = Stores(options.home), dict(os.environ)
        job = Job(options.home, self._folder, plan.name, options.python, environ, self._began, self._stores, umask)
        self._steps = {name: execution_of(step, job) for name, step in plan.steps.items()}
        self._executions = list(self._steps.values())  # and the trials of sweeps, as they are begun
        self._record = RunRecord(self._folder, plan, options.request.to_document())

    def run(self) -> RunResult:
        """Start what can start, wait, note what happened; again, until every step is over."""
        self._folder.path.mkdir(parents=True)
        alive = self._folder.lock()
        try:
            self._record.write_request(self._options.definition)
            self._record.write(self._steps, running=True)  # before what takes time: a run that is killed is listed
            take_snapshots(self._steps.values(), self._folder)
            self._observer.started(self._folder, self._plan)
            return self._outcome(alive)
        finally:
            os.close(alive)

    def _outcome(self, alive: int) -> RunResult:
        """What became of the run; steps that cannot go on, because the disk is full, have failed."""
        try:
            self._loop()
            result = self._record.write(self._steps, signal=self._signal)
            write_report(self._folder)
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # of what is printed: nobody reads it any more
                raise
            return self._give_up(error, alive)
        return result

    def _loop(self) -> None:
        processes.become_subreaper()
        self._guard = Guard(f"AZUREML_ROOT_RUN_ID={self._folder.id}")
        self._selector.register(self._guard.pidfd, selectors.EVENT_READ, "guard")
        try:
            with caught_signals(self._note_signal) as descriptor:
                self._selector.register(descriptor, selectors.EVENT_READ, "signal")
                while self._advance():
                    self._wait()
        finally:
            self._end_all()
            self._guard.close()
            self._selector.close()

    # Starting

    def _advance(self) -> bool:
        """Start every step that can start; False when all are over."""
        for execution in self._executions:  # grows while it is read
            if execution.status == WAITING:
                self._consider(execution)
            elif isinstance(execution, Sweep) and not execution.over:
                self._steer(execution)
            elif execution.status == RETRYING and execution.due is not None and execution.due <= time.monotonic():
                self._launch(execution)
        return not all(execution.over for execution in self._steps.values())

    def _consider(self, execution: Execution) -> None:
        """Skip, reuse or start one waiting step, or leave it waiting."""
        upstream = [self._steps[name] for name in execution.step.after]
        if any(other.over and other.status != SUCCEEDED for other in upstream):
            self._end(execution, SKIPPED)
        elif all(other.status == SUCCEEDED for other in upstream):
            if not execution.key:
                execution.key = execution.identify({other.step.name: _finished(other) for other in upstream})
            if not self._reuse(execution) and self._may_start(execution) and self._acquire(execution):
                self._launch(execution)

    def _steer(self, sweep: Sweep) -> None:
        """End the trials that fall behind, begin those that may be, and end the sweep when all are over."""
        for trial, reason in sweep.fallen_behind():
            if trial.gang is not None:
                self._kill(trial.gang)
            self._end(trial, CANCELLED, Failure(reason))
        for trial in sweep.new_trials():
            self._executions.append(trial)
            if trial.over:
                self._changed(trial)
        if sweep.settled:
            failure = sweep.conclude(self._cache)
            if failure is None:
                self._changed(sweep)
            else:
                self._end(sweep, FAILED, failure)

    def _reusable(self, execution: Execution) -> bool:
        return self._options.use_cache and not self._plan.force_rerun and execution.step.component.is_deterministic

    def _reuse(self, execution: Execution) -> bool:
        finished = self._cache.find(execution.key) if self._reusable(execution) else None
        if finished is not None:
            execution.reuse(self._cache, finished)
            self._changed(execution)
        return finished is not None

    def _may_start(self, execution: Execution) -> bool:
        """Whether MLflow's tables are there and the cores suffice; a step larger than the machine runs alone."""
        busy = sum(other.step.ranks for other in self._executions if other.gang is not None)
        return (busy == 0 or busy + execution.step.ranks <= machine.cores()) and execution.store_ready

    def _acquire(self, execution: Execution) -> bool:
        """Take the step's workplace; False while an equal step, here or in another engine, has it."""
        workplace = Workplace(self._options.home, execution.key)
        if not workplace.acquire():
            return False
        if self._reuse(execution):  # somebody finished it between our look and our lock
            workplace.discard()
            return False
        execution.workplace = workplace
        if not self._options.use_cache:
            workplace.prepare([])
        return True

    def _launch(self, execution: Execution) -> None:
        if isinstance(execution, Sweep):
            execution.begin(fresh=not self._reusable(execution))
            self._changed(execution)
            self._steer(execution)
            return
        data = {name: self._path(value) for name, value in execution.step.inputs.items() if not isinstance(value, str)}
        missing = [f"{name} ({path})" for name, path in data.items() if not path.exists()]
        if missing:
            self._end(execution, FAILED, Failure(f"its input is not there: {', '.join(missing)}"))
            return
        try:
            execution.start(data, self._ports, self._guard)
        except (OSError, StorageError) as error:
            self._end(execution, FAILED, Failure(f"could not be started: {error}"))
            return
        assert execution.gang is not None  # noqa: S101 start has made it
        for descriptor in execution.gang.descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ, execution)
        execution.status = RUNNING
        self._changed(execution)

    def _path(self, value: StepOutput | Path) -> Path:
        if isinstance(value, Path):
            return value
        return (self._steps[value.step].folder.outputs / value.port).resolve()

    # Waiting

    def _wait(self) -> None:
        """Sleep until a rank ends, a time is up or a signal comes, and deal with what happened."""
        events = self._selector.select(self._patience())
        ended: dict[Execution, list[int]] = {}
        for key, _ in events:
            if isinstance(key.data, Execution):
                ended.setdefault(key.data, []).append(key.fd)
            elif key.data == "guard":
                self._selector.unregister(key.fd)
                self._guard.replace()
                self._selector.register(self._guard.pidfd, selectors.EVENT_READ, "guard")
            else:
                os.read(key.fd, 64)
        for execution, descriptors in ended.items():
            if execution.gang is not None:  # the end of another step may just have cancelled it
                self._note_exits(execution, execution.gang, descriptors)
        if self._signal is not None:
            self._cancel()
        self._enforce_timeouts()
        self._observer.tick(self._steps)
        self._page.look(lambda: self._record.document(self._steps, running=True))

    def _patience(self) -> float | None:
        now = time.monotonic()
        dues = [execution.due - now for execution in self._executions if execution.due is not None]
        blocked = any(e.status == WAITING for e in self._executions) and not any(e.gang for e in self._executions)
        return max(0.0, min([*dues, LOCK_POLL if blocked else TICK]))

    def _note_exits(self, execution: Execution, gang: Gang, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            self._selector.unregister(descriptor)
        gang.reap(descriptors)
        if gang.first_failure is not None:
            gang.kill()  # the others' exits come as events of their own
        elif gang.only_servers_left:
            execution.due = time.monotonic() + SERVERS
        if gang.over:
            processes.sweep_orphans(self._known(), [gang.marker])
            self._finish_attempt(execution, gang)

    def _known(self) -> set[int]:
        return {self._guard.pid}.union(*(one.gang.pids for one in self._executions if one.gang is not None))

    def _finish_attempt(self, execution: Execution, gang: Gang) -> None:
        timed_out = execution.step.name in self._timed_out
        self._timed_out.discard(execution.step.name)
        if gang.first_failure is None and not timed_out:
            broken = execution.broken_promise(gang)
            if not broken:
                execution.publish(self._cache)
                self._changed(execution)
                return
            failure = Failure(broken)
        else:
            failure = execution.explain(gang, timed_out=timed_out)
        if timed_out and isinstance(execution, Trial):
            self._end(execution, CANCELLED, failure)  # as on Azure ML: a limit of the sweep, and not a fault
        elif execution.may_retry(self._options.request.retries, gang, timed_out=timed_out):
            execution.keep_logs()
            execution.status, execution.gang, execution.failure = RETRYING, None, failure
            execution.due = time.monotonic() + min(2.0 ** (execution.attempts - 1), LONGEST_PAUSE)
            self._changed(execution)
        else:
            self._end(execution, FAILED, failure)

    def _enforce_timeouts(self) -> None:
        """Ask the ranks of an attempt whose time is up for their stacks; kill them half a second later."""
        now = time.monotonic()
        for execution in self._executions:
            if execution.gang is None or execution.due is None or execution.due > now:
                continue
            if execution.gang.only_servers_left:
                execution.gang.dismiss_servers()
                execution.due = None
            elif execution.step.name in self._timed_out:
                execution.gang.kill()
                execution.due = None
            else:
                self._timed_out.add(execution.step.name)
                execution.gang.ask_for_stacks()
                execution.due = now + STACKS

    # Ending

    def _end(self, execution: Execution, status: str, failure: Failure | None = None) -> None:
        execution.end(status, failure)
        self._changed(execution)
        if status == FAILED and not self._plan.continue_on_failure and not isinstance(execution, Trial):
            self._cancel()

    def _cancel(self) -> None:
        """Stop everything that is not over: running steps are killed, waiting ones never start."""
        for execution in self._executions:
            if execution.over:
                continue
            if execution.gang is not None:
                self._kill(execution.gang)
            execution.end(CANCELLED)
            self._changed(execution)

    def _kill(self, gang: Gang) -> None:
        gang.kill()
        for descriptor in gang.descriptors:
            self._selector.unregister(descriptor)
        gang.reap(gang.descriptors)
        processes.sweep_orphans(self._known(), [gang.marker])

    def _end_all(self) -> None:
        """Whatever happened, also a fault of ours: no process stays behind."""
        self._stores.close()
        for execution in self._executions:
            if execution.gang is not None and not execution.gang.over:
                self._kill(execution.gang)

    def _give_up(self, error: OSError, alive: int) -> RunResult:
        """End what is not over without a further look at the disk, then write what can be written of it."""
        os.ftruncate(alive, 0)  # its room was kept for this
        why = f"the runs folder {self._options.home.path} cannot be written: {error.strerror or error}"
        abandon(self._executions, why)
        with suppress(OSError):
            self._record.write(self._steps)
            write_report(self._folder)
        return self._record.result(self._steps)

    def _note_signal(self, number: int) -> None:
        self._signal = number

    def _changed(self, execution: Execution) -> None:
        self._observer.changed(execution.keep())
        if isinstance(execution, Trial):
            execution.sweep.keep()


def _finished(execution: Execution) -> Finished:
    assert execution.finished is not None  # noqa: S101 it has succeeded
    return execution.finished
