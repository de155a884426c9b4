"""Drills of a target: the undisturbed run first, then a run for each drill, and what they wrote beside each other."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from allranks.drill.comparing import OutputComparison, compare_outputs
from allranks.drill.conducting import DisturbedRun, RunConductor, TimeLimits
from allranks.drill.faults import AT_CHECKPOINT, AT_SAVE, AT_SECONDS, AT_STEP, STOP, DrillFault
from allranks.drill.progress import logged_step
from allranks.drill.report import DrillOutcome, UndisturbedStep
from allranks.errors import CannotRunHereError, UsageError
from allranks.local.cache import link_folder
from allranks.local.folders import RunsHome, StepFolder
from allranks.local.options import RunOptions
from allranks.local.plan import RunPlan
from allranks.local.record_shapes import read_json_file
from allranks.local.result import SUCCEEDED, read_progress
from allranks.performing import PreparedRun

_UNDISTURBED, _AGAIN = "undisturbed", "undisturbed again"  # the variants of the steps in these runs
_PATIENCE = 120.0  # seconds beside what the attempts may take
_TIMES = 4.0  # as long as undisturbed an attempt may take: a machine is busier at one time than at another


@dataclass(frozen=True, slots=True)
class DrillSetting:
    """What is drilled: the plan of the steps that faults strike, and of what these need.

    Attributes:
        prepared: the run as it was asked for.
        struck: the steps that faults are for.
        notice_limit: seconds in which somebody has to notice that a rank has stopped.
        tell: is called with a line on what happens.
    """

    prepared: PreparedRun
    home: RunsHome
    struck: tuple[str, ...]
    notice_limit: float
    tell: Callable[[str], None]

    def plan(self, variant: str) -> RunPlan:
        """The plan, its struck steps kept apart from others that are equal."""
        plan = self.prepared.plan.only(self.struck)
        steps = {
            name: replace(step, variant=variant) if name in self.struck else step for name, step in plan.steps.items()
        }
        return replace(plan, steps=steps)

    def options(self) -> RunOptions:
        """How it is run; nothing that an earlier run left half done is taken."""
        request = replace(self.prepared.request, cache=True)
        return RunOptions(
            self.home, Path(sys.executable), request, self.prepared.definition, anew=frozenset(self.struck)
        )


def run_undisturbed(setting: DrillSetting, *, again: bool = False) -> list[UndisturbedStep]:
    """Run the steps without a fault, or find what an earlier drill of the same has left.

    Raises:
        CannotRunHereError: the undisturbed run fails.
    """
    limits = TimeLimits(setting.notice_limit, float("inf"))
    conductor = RunConductor(setting.plan(_AGAIN if again else _UNDISTURBED), setting.options(), (), {}, limits)
    run = conductor.perform()
    folder = setting.home.run(run.runs[-1]) if run.runs else None
    if run.status != SUCCEEDED or folder is None:
        where = f"`allranks runs show {folder.id}{setting.home.option}` has more." if folder else ""
        raise CannotRunHereError(f"the undisturbed run {run.status or 'failed'}: {run.message}.", where)
    return [_undisturbed_step(folder.step(name), name, folder.id, setting) for name in setting.struck]


def _undisturbed_step(folder: StepFolder, name: str, run_id: str, setting: DrillSetting) -> UndisturbedStep:
    """What the step was like, in the run that has executed it."""
    state = read_json_file(folder.state)
    source = state.get("reused_from")
    if source:
        run_id = source
        folder = setting.home.run(source).step(name)
        state = read_json_file(folder.state)
    steps = read_progress(folder.metrics()).step
    if steps is None:
        steps = logged_step(setting.home.run(run_id), name)
    outputs = _written_by(folder, setting)
    return UndisturbedStep(name, run_id, folder.path, float(state["seconds"]), outputs, steps)


def _written_by(folder: StepFolder, setting: DrillSetting) -> dict[str, Path]:
    """The outputs of a step; of a script what it has written beside itself on each node."""
    outputs = (
        {path.name: path.resolve() for path in sorted(folder.outputs.iterdir())} if folder.outputs.is_dir() else {}
    )
    if setting.prepared.request.script is not None:
        work = folder.path / "nodes"
        nodes = sorted(path for path in work.iterdir() if path.name.isdigit()) if work.is_dir() else []
        outputs |= {f"node {path.name}": path / "work" for path in nodes}
    return outputs


def check_faults(faults: Sequence[DrillFault], undisturbed: Sequence[UndisturbedStep]) -> None:
    """Refuse what can never strike, as the undisturbed run tells; raises UsageError."""
    steps = {step.name: step for step in undisturbed}
    for fault in faults:
        step, moment = steps[fault.step], fault.moment
        option = f"--{fault.action} {fault}"
        if moment.kind == AT_STEP and step.trained_steps is None:
            what = f"{step.name} logs no steps, neither to outputs/metrics.jsonl nor with MLflow"
            raise UsageError(f"{option}: {what}.", f"It takes {step.seconds:.1f} s: write @10s or @50%.")
        if moment.kind == AT_STEP and step.trained_steps is not None and moment.value > step.trained_steps:
            raise UsageError(f"{option}: {step.name} has {step.trained_steps} steps.", "Choose an earlier one.")
        if moment.kind == AT_SECONDS and moment.value >= step.seconds:
            raise UsageError(f"{option}: {step.name} takes {step.seconds:.1f} s.", "Choose an earlier moment.")
        if moment.kind in (AT_CHECKPOINT, AT_SAVE) and not step.outputs:
            raise UsageError(f"{option}: {step.name} has no output, so it saves nothing.", "Write @10s or @50%.")


def run_drill(
    setting: DrillSetting, number: int, faults: Sequence[DrillFault], undisturbed: Sequence[UndisturbedStep]
) -> DrillOutcome:
    """Run with these faults and compare what was written with the undisturbed run's."""
    steps = {step.name: step for step in undisturbed}
    seconds = {name: step.seconds for name, step in steps.items()}
    options = setting.options()
    plan = setting.plan(f"drill {time.time_ns()} {secrets.token_hex(4)}")
    run = RunConductor(plan, options, faults, seconds, _limits(setting, faults, seconds)).perform()
    alone = sum(seconds[name] for name in {fault.step for fault in faults})
    if run.status != SUCCEEDED:
        return DrillOutcome(number, tuple(faults), run, alone)
    found = {name: _compare(setting, run, step) for name, step in steps.items()}
    repeatable = True
    if not all(one.is_equal for one in found.values()):
        setting.tell("  something differs: does it between two undisturbed runs?")
        second = {step.name: step for step in run_undisturbed(setting, again=True)}
        repeatable = not _explained(
            found, {name: compare_outputs(steps[name].outputs, second[name].outputs) for name in steps}
        )
    _give_up_copies(setting, run, steps, found)
    return DrillOutcome(number, tuple(faults), run, alone, found, repeatable)


def _limits(setting: DrillSetting, faults: Sequence[DrillFault], seconds: Mapping[str, float]) -> TimeLimits:
    stops = sum(1 for fault in faults if fault.action == STOP)
    slowest = max((fault.factor for fault in faults), default=1.0)
    attempts = 1 + sum(1 for fault in faults if fault.ends_attempt)
    whole = _PATIENCE + attempts * _TIMES * slowest * sum(seconds.values()) + 2 * stops * setting.notice_limit
    return TimeLimits(setting.notice_limit, whole)


def _compare(setting: DrillSetting, run: DisturbedRun, step: UndisturbedStep) -> OutputComparison:
    return compare_outputs(step.outputs, _written_by(setting.home.run(run.runs[-1]).step(step.name), setting))


def _explained(found: Mapping[str, OutputComparison], undisturbed: Mapping[str, OutputComparison]) -> bool:
    """Whether each file that differs does so between two undisturbed runs as well."""
    return all(one.differences.keys() <= undisturbed[name].differences.keys() for name, one in found.items())


def _give_up_copies(
    setting: DrillSetting,
    run: DisturbedRun,
    steps: Mapping[str, UndisturbedStep],
    found: Mapping[str, OutputComparison],
) -> None:
    """Let the undisturbed run's outputs stand for those that are equal: a model is kept once."""
    for name, comparison in found.items():
        folder = setting.home.run(run.runs[-1]).step(name)
        original = StepFolder(steps[name].folder).outputs
        if comparison.is_equal and folder.outputs.is_dir() and not folder.outputs.is_symlink() and original.is_dir():
            link_folder(folder.outputs, original)
