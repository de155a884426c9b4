"""A drill of a step: the undisturbed run, one that a fault strikes in a forked engine, and both outputs compared."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from allranks.drill.comparing import OutputComparison, compare_outputs
from allranks.drill.faults import AT_SECONDS, AT_STEP, ENGINE, STOP, DrillFault, processes_of, send_signal, victims_of
from allranks.errors import CannotRunHereError, UsageError
from allranks.local import processes
from allranks.local.checkpoints import find_checkpoint
from allranks.local.engine import run_plan
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, RunsHome, StepFolder
from allranks.local.options import RunObserver, RunOptions
from allranks.local.plan import RunPlan
from allranks.local.record_shapes import read_json_file
from allranks.local.result import FAILED, RETRYING, RUNNING, SUCCEEDED, StepResult, read_progress
from allranks.local.tracking.jobs import job_run_id
from allranks.local.tracking.reading import TrackingReader
from allranks.performing import PreparedRun

HUNG = "hung"
_UNSTRUCK_SECONDS = 240.0  # beside what the attempts may take
_TIMES = 8.0  # as long as undisturbed two attempts may take: a machine is busier at one time than at another

_POLL = 0.05  # seconds between two looks
_LEFT_SECONDS = 10.0  # that processes of a run have to be gone after it


@dataclass(slots=True)
class DisturbedRun:
    """What became of a run that a fault struck, or of an undisturbed one. Times are monotonic seconds.

    Attributes:
        runs: the ids of its runs, one for each start of the engine.
        status: the last run's, or ``hung``; ``message`` is what ended it.
        began, ended: of the step that is struck: its first attempt's start, and its last change of status.
        attempts: of that step, of all engines together.
        is_left: whether this drill alone has started the step again.
        processes_left: those that were still there after the run, and were ended then.
        struck: when; None if the fault's moment has not come.
        struck_attempt: the attempt that was struck; 0 for none.
        at_step: the last step of the training that was logged then, where any was.
        noticed: when the processes that ran then had all ended; None of what nobody noticed.
        resumed_step: the step from which the next attempt went on; None unknown.
        processes_struck: how many were struck.
    """

    runs: list[str] = field(default_factory=list)
    status: str = ""
    message: str = ""
    began: float | None = None
    ended: float | None = None
    attempts: int = 0
    is_left: bool = False
    processes_left: int = 0
    struck: float | None = None
    struck_attempt: int = 0
    at_step: int | None = None
    noticed: float | None = None
    resumed_step: int | None = None
    processes_struck: int = 0


class _ReportingObserver(RunObserver):
    """Sends what happens in the engine's process to the drill's; a step that failed is started again at once."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel

    def send(self, kind: str, **about: Any) -> None:
        """Send an event with its time, in monotonic seconds, which all processes of a machine share."""
        self._channel.send({"kind": kind, "time": time.monotonic(), **about})

    def started(self, run: RunFolder, plan: RunPlan) -> None:  # noqa: ARG002 the drill has it
        """The run begins."""
        self.send("started", run=run.id)

    def changed(self, step: StepResult) -> None:
        """A step has another status."""
        self.send(step.status, step=step.name, message=f"{step.name}: {step.failure.message}" if step.failure else "")

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """No back-off: how long one waits says nothing about the step."""
        for execution in steps.values():
            if execution.status == RETRYING:
                execution.due = time.monotonic()
                if not execution.comes_back:
                    self.send("left")


def _perform_plan(plan: RunPlan, options: RunOptions, channel: Connection, parent: int) -> None:
    """The whole life of the engine's process, in a session of its own: Ctrl-C is for who drills."""
    os.setsid()
    processes.die_with(parent)
    observer = _ReportingObserver(channel)
    try:
        observer.send("ended", status=run_plan(plan, options, observer).status)
    except BaseException as error:  # noqa: BLE001 told to who drills, whose process this is a copy of
        observer.send("ended", status=FAILED, message=f"{type(error).__name__}: {error}")


class RunConductor:
    """Runs a plan and lets a fault strike its step, whose undisturbed time is ``seconds``; ends after ``limit``."""

    def __init__(
        self,
        plan: RunPlan,
        options: RunOptions,
        step: str,
        fault: DrillFault | None = None,
        seconds: float = 0.0,
        limit: float = float("inf"),
    ) -> None:
        self._plan, self._options, self._step = plan, options, step
        self._fault, self._seconds, self._limit = fault, seconds, limit
        self._witnesses: list[int] = []
        self._running_since: float | None = None  # seconds since 1970
        self.found = DisturbedRun()

    def perform(self) -> DisturbedRun:
        """Run to the end, over as many engines as it takes; no process of it is left then."""
        until = time.monotonic() + self._limit
        while self._run_engine(until) and self.found.status != HUNG:  # as `--resume` would: what has ended has ended
            request = replace(self._options.request, since=self._options.request.since or self.found.runs[0])
            self._options = replace(self._options, request=request, anew=frozenset())
        return self.found

    def _run_engine(self, until: float) -> bool:
        """Run one engine to its end; return whether the fault has killed it."""
        context, is_killed = multiprocessing.get_context("fork"), False
        events, channel = context.Pipe(duplex=False)
        engine = context.Process(target=_perform_plan, args=(self._plan, self._options, channel, os.getpid()))
        engine.start()
        channel.close()
        try:
            with suppress(EOFError):
                while True:
                    if events.poll(_POLL):
                        self._note(events.recv())
                    self._note_end()
                    if self._running_since is not None and self._advance(self._running_since):
                        engine.kill()
                        is_killed = True
                    if time.monotonic() > until:
                        self.found.status, self.found.message = HUNG, f"not ended after {self._limit:.0f} s"
                        break
        finally:
            engine.kill()
            engine.join()
            self._running_since = None
            self._end_processes()
        return is_killed

    def _note(self, event: Mapping[str, Any]) -> None:
        """Note an event of the engine."""
        found, kind = self.found, event["kind"]
        found.message = event.get("message") or found.message
        if kind == "started":
            found.runs.append(event["run"])
        elif kind == "ended":
            found.status = event["status"]
        elif kind == "left":
            found.is_left = True
        elif event["step"] == self._step:
            found.ended, self._running_since = None if kind == RUNNING else event["time"], None
            if kind == RUNNING:
                self._begin_attempt(event["time"])

    def _begin_attempt(self, moment: float) -> None:
        found, run = self.found, self._run_folder
        found.began = moment if found.began is None else found.began
        found.attempts += 1
        self._running_since = time.time()
        if found.struck is not None and found.resumed_step is None:
            state = read_json_file(run.step(self._step).state) or {}
            saved = find_checkpoint([run.home.path / "work" / str(state.get("key", "")) / "outputs"])
            found.resumed_step = saved.step if saved else None

    def _advance(self, since: float) -> bool:
        """Let the fault strike when its moment has come, and note what follows; return whether to kill the engine."""
        found, fault = self.found, self._fault
        if fault is None or found.began is None:
            return False
        if found.struck is None:
            return self._is_due(fault, found.began, since) and self._strike(fault, since)
        # Where no checkpoint's name says it, the first step that the next attempt logs does.
        if found.resumed_step is None and found.at_step is not None and found.attempts > found.struck_attempt:
            step = trained_step(self._run_folder, self._step, since)
            found.resumed_step = None if step is None else max(0, step - 1)
        return False

    def _is_due(self, fault: DrillFault, began: float, since: float) -> bool:
        if fault.kind == AT_STEP:
            return (trained_step(self._run_folder, self._step, since) or 0) >= fault.value
        return time.monotonic() - began >= fault.value * (1.0 if fault.kind == AT_SECONDS else self._seconds / 100)

    def _strike(self, fault: DrillFault, since: float) -> bool:
        found, running = self.found, processes_of(job_run_id(self.found.runs[-1], self._step))
        victims = [] if fault.victim == ENGINE else victims_of(fault, self._plan.steps[self._step], running)
        if fault.victim != ENGINE and not victims:
            return False
        send_signal(signal.SIGSTOP if fault.action == STOP else signal.SIGKILL, victims)
        found.struck, found.struck_attempt = time.monotonic(), found.attempts
        found.processes_struck = len(victims) or 1
        found.at_step = trained_step(self._run_folder, self._step, since)
        self._witnesses = [one.pid for one in running if one.rank is not None]
        return fault.victim == ENGINE

    @property
    def _run_folder(self) -> RunFolder:
        return self._options.home.run(self.found.runs[-1])

    def _note_end(self) -> None:
        """Note when all ranks that ran at the strike have ended, zombies included."""
        is_gone = all(processes.stat_fields(pid)[:1] in ([], [b"Z"]) for pid in self._witnesses)
        if self.found.struck is not None and self.found.noticed is None and is_gone:
            self.found.noticed = time.monotonic()

    def _end_processes(self) -> None:
        """Wait for the last processes, and end those that stay."""
        until = time.monotonic() + _LEFT_SECONDS
        markers = [f"AZUREML_ROOT_RUN_ID={run}".encode() for run in self.found.runs]
        while left := [pid for pid in processes.every_pid() if _is_of_run(pid, markers)]:
            self._note_end()
            if time.monotonic() > until:
                self.found.processes_left += len(left)
                processes.kill(left)
                break
            time.sleep(_POLL)
        self._note_end()


def _is_of_run(pid: int, markers: Sequence[bytes]) -> bool:
    return not processes.is_zombie(pid) and any(processes.carries(pid, marker) for marker in markers)


def trained_step(run: RunFolder, step: str, since: float = 0.0) -> int | None:
    """The last step of the training that was logged to metrics.jsonl, or with MLflow since then (seconds since 1970).

    None where none above 0 was logged.
    """
    found = read_progress(run.step(step).metrics(), tail=True).step
    if found is not None:
        return found
    with suppress(OSError), TrackingReader(run.home) as reader:
        points = [point for one in reader.metrics(job_run_id(run.id, step)).values() for point in one]
        return max((point.step for point in points if point.time >= since and point.step > 0), default=None)
    return None


@dataclass(frozen=True, slots=True)
class UndisturbedStep:
    """The step of the run that the other is compared with.

    Attributes:
        run_id: of the run that has executed it.
        outputs: what it has written, by name.
        trained_steps: the last step of the training that it has logged; None where it logs none.
    """

    run_id: str
    seconds: float
    outputs: Mapping[str, Path]
    trained_steps: int | None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A drill of what was asked for; ``tell`` is called with a line on what happens."""

    prepared: PreparedRun
    home: RunsHome
    fault: DrillFault
    tell: Callable[[str], None]

    def run_undisturbed(self, variant: str = "undisturbed") -> UndisturbedStep:
        """Run the step without the fault, or find what an earlier drill of the same has left.

        Raises:
            CannotRunHereError: the undisturbed run fails.
        """
        run, name = self._perform(variant), self.fault.step
        if run.status != SUCCEEDED:
            where = f"`allranks runs show {run.runs[-1]}{self.home.option}` has more." if run.runs else ""
            raise CannotRunHereError(f"the undisturbed run {run.status or 'failed'}: {run.message}.", where)
        state = read_json_file(self.home.run(run.runs[-1]).step(name).state)
        folder = self.home.run(state.get("reused_from") or run.runs[-1])
        seconds = float(read_json_file(folder.step(name).state)["seconds"])
        return UndisturbedStep(folder.id, seconds, self._written_by(folder.step(name)), trained_step(folder, name))

    def check(self, undisturbed: UndisturbedStep) -> None:
        """Refuse a fault that can never strike, as the undisturbed run tells; raises UsageError."""
        fault, steps, seconds = self.fault, undisturbed.trained_steps, undisturbed.seconds
        option = f"--{fault.action} {fault}"
        if fault.kind == AT_STEP and steps is None:
            message = f"{option}: {fault.step} logs no steps, neither to outputs/metrics.jsonl nor with MLflow."
            raise UsageError(message, f"It takes {seconds:.1f} s: write @10s or @50%.")
        if fault.kind == AT_STEP and steps is not None and fault.value > steps:
            raise UsageError(f"{option}: {fault.step} has {steps} steps.", "Choose an earlier one.")
        if fault.kind == AT_SECONDS and fault.value >= seconds:
            raise UsageError(f"{option}: {fault.step} takes {seconds:.1f} s.", "Choose an earlier moment.")

    def run_drill(self, undisturbed: UndisturbedStep) -> dict[str, Any]:
        """Run with the fault, compare with the undisturbed run, and return the report as ``--json`` prints it."""
        limit = _UNSTRUCK_SECONDS + _TIMES * undisturbed.seconds
        run, step, found = self._perform(f"drill {time.time_ns()}", undisturbed.seconds, limit), self.fault.step, None
        result, reason = HUNG if run.status == HUNG else "not recovered", run.message
        if run.status == SUCCEEDED:
            folder = self.home.run(run.runs[-1]).step(step)
            found = compare_outputs(undisturbed.outputs, self._written_by(folder))
            result, reason = self._judge(run, undisturbed, found)
        if run.processes_left:
            reason = f"{reason}; {run.processes_left} processes left, ended by the drill".lstrip("; ")
        passed = result == "equal" and not run.processes_left
        lost = None if run.ended is None or run.began is None else run.ended - run.began - undisturbed.seconds
        note = "`allranks run` would not have: it had no newer checkpoint with a step or epoch in its name"
        drill = {
            "number": 1,
            "faults": [self._fault_document(run)],
            "result": result,
            "passed": passed,
            "reason": reason,
            "restarted_by_drill": [step] if run.is_left else [],
            "note": f"{step} was started again by the drill; {note}" if run.is_left else "",
            "runs": run.runs,
            "attempts": {step: run.attempts},
            "seconds_lost": None if lost is None else round(lost, 3),
            "processes_left": run.processes_left,
            "compared": {step: asdict(found)} if found else {},
        }
        alone = {
            "run_id": undisturbed.run_id,
            "seconds": round(undisturbed.seconds, 3),
            "trained_steps": undisturbed.trained_steps,
            "outputs": {name: str(path) for name, path in undisturbed.outputs.items()},
        }
        return {
            "target": self.prepared.request.target,
            "passed": passed,
            "folder": str(self.home.run(run.runs[-1]).path),
            "undisturbed": {step: alone},
            "drills": [drill],
        }

    def _perform(self, variant: str, seconds: float = 0.0, limit: float = 0.0) -> DisturbedRun:
        """Run the step and what it needs, kept apart from equal steps; with a limit the fault strikes."""
        name, plan = self.fault.step, self.prepared.plan.only([self.fault.step])
        plan = replace(plan, steps={**plan.steps, name: replace(plan.steps[name], variant=variant)})
        fault, retries = (self.fault, 1) if limit else (None, None)
        request = replace(self.prepared.request, cache=True, retries=retries)
        options = RunOptions(self.home, Path(sys.executable), request, self.prepared.definition, anew=frozenset([name]))
        return RunConductor(plan, options, name, fault, seconds, limit or float("inf")).perform()

    def _written_by(self, folder: StepFolder) -> dict[str, Path]:
        """The outputs of a step; of a script also what it has written beside itself on each node."""
        outputs = {path.name: path.resolve() for path in sorted(folder.outputs.glob("*"))}
        if self.prepared.request.script is not None:
            outputs |= {f"node {path.parent.name}": path for path in sorted(folder.path.glob("nodes/[0-9]*/work"))}
        return outputs

    def _judge(self, run: DisturbedRun, undisturbed: UndisturbedStep, found: OutputComparison) -> tuple[str, str]:
        """The result of a run that has succeeded, and the reason of one that is not ``equal``."""
        if run.struck is None:
            return "not struck", f"{self.fault}: the step had ended before"
        if found.is_equal:
            return "equal", ""
        self.tell("  something differs: does it between two undisturbed runs?")
        again = compare_outputs(undisturbed.outputs, self.run_undisturbed("undisturbed again").outputs)
        reason = "; ".join(f"{name} {why}" for name, why in found.differences.items())
        reason = reason or "nothing was written that could be compared"
        if found.differences.keys() <= again.differences.keys():
            return "not repeatable", f"{reason}; two undisturbed runs differ so, too"
        return "different", reason

    def _fault_document(self, run: DisturbedRun) -> dict[str, Any]:
        fault, struck, noticed = self.fault, run.struck, run.noticed
        return {
            "action": fault.action,
            "fault": str(fault),
            "step": fault.step,
            "struck_after_seconds": None if struck is None or run.began is None else round(struck - run.began, 3),
            "struck_at_step": run.at_step,
            "attempt": run.struck_attempt or None,
            "processes_struck": run.processes_struck,
            "noticed_after_seconds": None if struck is None or noticed is None else round(noticed - struck, 3),
            "noticed": noticed is not None,
            "resumed_from_step": run.resumed_step,
            "steps_repeated": max(0, run.at_step - run.resumed_step)
            if run.at_step is not None and run.resumed_step is not None
            else None,
        }
