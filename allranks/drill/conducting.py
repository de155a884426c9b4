"""One run of a plan in which faults strike: started again after each of them, and never waited for without end."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from allranks.drill.engine_process import CHANGED, ENDED, LEFT, STARTED, EngineEvent, EngineProcess
from allranks.drill.faults import STOP, DrillFault
from allranks.drill.progress import StepWatch, corrupt_file
from allranks.drill.strikes import FaultStrike
from allranks.local import processes
from allranks.local.checkpoints import find_saved_state
from allranks.local.options import RunOptions
from allranks.local.plan import RunPlan
from allranks.local.result import CANCELLED, FAILED, RETRYING, RUNNING, SUCCEEDED
from allranks.local.tracking.jobs import job_run_id

_POLL = 0.01  # seconds between two looks while a fault waits for its moment
_IDLE = 0.1
_LEFT_SECONDS = 10.0  # that processes of a run have to be gone after it
HUNG = "hung"


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long is waited, in seconds.

    Attributes:
        notice: for somebody to notice that a rank has stopped.
        whole: for the run, all attempts together.
    """

    notice: float
    whole: float


@dataclass(slots=True)
class DisturbedRun:
    """What became of a run in which faults struck, or of an undisturbed one.

    Attributes:
        runs: the ids of its runs, one for each start of the engine.
        status: the last run's, or ``hung``; ``message`` is what ended it.
        began, ended: of each step, in monotonic seconds: its first attempt's start, and its end.
        attempts: of each step, of all engines together.
        left: the steps that this drill alone has started again.
        processes_left: those that were still there after it, and were ended then.
    """

    runs: list[str] = field(default_factory=list)
    status: str = ""
    message: str = ""
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    strikes: list[FaultStrike] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    processes_left: int = 0

    def seconds(self, step: str) -> float | None:
        """How long a step took, all attempts together; None of one that has not ended, or did not run."""
        return self.ended[step] - self.began[step] if step in self.ended and step in self.began else None


class RunConductor:
    """Runs a plan and lets faults strike it; ``undisturbed`` has the seconds of each step that they are for."""

    def __init__(
        self,
        plan: RunPlan,
        options: RunOptions,
        faults: Sequence[DrillFault],
        undisturbed: dict[str, float],
        limits: TimeLimits,
    ) -> None:
        self._plan = plan
        if count := sum(1 for fault in faults if fault.ends_attempt):  # others leave it to what is usual
            request = replace(options.request, retries=max(options.request.retries or 0, count))
            options = replace(options, request=request)
        self._options = options
        self._undisturbed = undisturbed
        self._limits = limits
        self._watches: dict[str, StepWatch] = {}
        self._restarts = False
        self.found = DisturbedRun(strikes=[FaultStrike(fault) for fault in faults])

    def perform(self) -> DisturbedRun:
        """Run to the end, over as many engines as it takes; no process of it is left then."""
        processes.become_subreaper()  # what a killed engine leaves is to be seen, and reaped
        until = time.monotonic() + self._limits.whole
        while True:
            self._restarts = False
            self._run_engine(until)
            self._count_left()
            if not self._restarts or self.found.status == HUNG:
                return self.found

    def _run_engine(self, until: float) -> None:
        if self.found.runs:  # as `--resume` would: what the first engine has finished is finished
            request = replace(self._options.request, since=self._options.request.since or self.found.runs[0])
            self._options = replace(self._options, request=request, anew=frozenset())
        engine = EngineProcess(self._plan, self._options)
        try:
            while engine.is_open:
                event = engine.next_event(self._patience())
                if event is not None:
                    self._note(event, engine)
                self._advance(engine)
                if time.monotonic() > until:
                    self.found.status, self.found.message = HUNG, f"not ended after {self._limits.whole:.0f} s"
                    return
        finally:
            for strike in self.found.strikes:
                strike.release()
            engine.kill()
            engine.close()
            self._wait_for_end()

    def _patience(self) -> float:
        busy = any(strike.noticed is None for strike in self.found.strikes)
        return _POLL if self._watches and busy else _IDLE

    # What the engine tells

    def _note(self, event: EngineEvent, engine: EngineProcess) -> None:
        found = self.found
        if event.kind == STARTED:
            found.runs.append(event.run)
        elif event.kind == ENDED:
            found.status = event.status
            found.message = event.message or found.message
        elif event.kind == LEFT and event.step not in found.left:
            found.left.append(event.step)
        elif event.kind == CHANGED:
            self._note_step(event, engine)

    def _note_step(self, event: EngineEvent, engine: EngineProcess) -> None:
        found, name = self.found, event.step
        if event.status == RUNNING:
            found.began.setdefault(name, event.time)
            found.attempts[name] = found.attempts.get(name, 0) + 1
            run = self._options.home.run(event.run)
            watch = self._watches[name] = StepWatch(run, self._plan.steps[name])
            self._note_resumption(name, watch)
            return
        self._watches.pop(name, None)
        if event.message:
            found.message = f"{name}: {event.message}"
        if event.status == RETRYING:
            self._corrupt(name, event.run)
            engine.let_retry()
        elif event.status in (SUCCEEDED, FAILED, CANCELLED) and name in found.began:
            found.ended[name] = event.time

    def _note_resumption(self, step: str, watch: StepWatch) -> None:
        """From where the attempt after a strike goes on; a checkpoint that was damaged is no place for that."""
        for strike in self._struck(step):
            if strike.resumed_step is None and strike.attempt < self.found.attempts[step] and not strike.corrupted:
                saved = find_saved_state(watch.outputs)
                strike.resumed_step = 0 if saved is None else saved.step

    def _corrupt(self, step: str, run: str) -> None:
        """Flip a bit in the newest checkpoint after a fault that asks for it."""
        for strike in self._struck(step):
            if strike.fault.corrupts and strike.corrupted is None:
                outputs = StepWatch(self._options.home.run(run), self._plan.steps[step]).outputs
                saved = find_saved_state(outputs)
                strike.corrupted = corrupt_file(saved) if saved is not None else None

    def _struck(self, step: str) -> list[FaultStrike]:
        return [
            one
            for one in self.found.strikes
            if one.struck is not None and one.fault.step == step and one.fault.ends_attempt
        ]

    # What the faults do

    def _advance(self, engine: EngineProcess) -> None:
        for strike in self.found.strikes:
            name = strike.fault.step
            strike.look()
            if strike.fault.action == STOP and strike.struck is not None and strike.noticed is None:
                late = time.monotonic() - strike.struck > self._limits.notice
                if late and not strike.ended_by_drill:
                    strike.end_unnoticed()
            if name not in self._watches:
                continue
            if strike.struck is None:
                self._try(strike, engine)
            else:
                strike.note_resumption(self._watches[name], self.found.attempts[name])
                strike.slow_down(self._plan.steps[name], self._marker(name))

    def _try(self, strike: FaultStrike, engine: EngineProcess) -> None:
        """Let a fault strike whose moment has come, unless an earlier one has just ended the attempt."""
        name = strike.fault.step
        watch = self._watches[name]
        if any(one.noticed is None for one in self._struck(name)):
            is_together = strike.fault.moment == self._struck(name)[-1].fault.moment
            if not is_together:
                return
        strike.attempt = self.found.attempts[name]
        if strike.is_due(self.found.began[name], self._undisturbed.get(name, 0.0), watch):
            strike.strike(self._plan.steps[name], self._marker(name), watch, lambda: self._kill_engine(engine))

    def _kill_engine(self, engine: EngineProcess) -> None:
        engine.kill()
        self._restarts = True

    def _marker(self, step: str) -> str:
        return f"AZUREML_RUN_ID={job_run_id(self.found.runs[-1], step)}"

    # What is left

    def _wait_for_end(self) -> None:
        """After the engine is gone: see the processes end that ran with it, and do what was to be done until then."""
        until = time.monotonic() + _LEFT_SECONDS
        while any(s.struck and s.noticed is None and s.fault.ends_attempt for s in self.found.strikes):
            for strike in self.found.strikes:
                strike.look()
            if time.monotonic() > until:
                break
            time.sleep(_POLL)
        if self._restarts and self.found.runs:
            for strike in self.found.strikes:
                if strike.struck is not None and strike.fault.victim == "engine":
                    self._corrupt(strike.fault.step, self.found.runs[-1])
        self._watches.clear()

    def _count_left(self) -> None:
        """Wait for the last processes, end those that stay, and reap all that fell to this process."""
        until = time.monotonic() + _LEFT_SECONDS
        while (left := self._carriers()) and time.monotonic() < until:
            time.sleep(_POLL)
            _reap_all()
        self.found.processes_left += len(left)
        processes.kill(left)
        _reap_all()

    def _carriers(self) -> list[int]:
        markers = [f"AZUREML_ROOT_RUN_ID={run}".encode() for run in self.found.runs]
        pids = [pid for pid in processes.every_pid() if pid != os.getpid() and not processes.is_zombie(pid)]
        return [pid for pid in pids if any(processes.carries(pid, marker) for marker in markers)]


def _reap_all() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
