"""What drills have found: one object that the terminal, the JSON document and the page show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allranks.drill.comparing import OutputComparison
from allranks.drill.conducting import HUNG, DisturbedRun
from allranks.drill.faults import DrillFault
from allranks.drill.strikes import FaultStrike
from allranks.files import write_text
from allranks.local.folders import write_json_file
from allranks.local.page.render import render_page
from allranks.local.result import SUCCEEDED
from allranks.wording import duration_words, with_count

EQUAL, DIFFERENT, UNREPEATABLE = "equal", "different", "not repeatable"
NOT_RECOVERED, MISSED = "not recovered", "not struck"


@dataclass(frozen=True, slots=True)
class UndisturbedStep:
    """A step of the run that the others are held to.

    Attributes:
        run_id: of the run that has executed it; ``folder`` is the step's there.
        outputs: what it has written, by name.
        trained_steps: the last step of the training that it has logged; None where it logs none.
    """

    name: str
    run_id: str
    folder: Path
    seconds: float
    outputs: Mapping[str, Path]
    trained_steps: int | None


@dataclass(frozen=True, slots=True)
class DrillOutcome:
    """What became of one drill: a run with one fault, or several at once."""

    number: int
    faults: tuple[DrillFault, ...]
    run: DisturbedRun
    undisturbed: float
    comparisons: Mapping[str, OutputComparison] = field(default_factory=dict)
    is_repeatable: bool = True

    @property
    def result(self) -> str:
        """``equal``, or why not."""
        if self.run.status != SUCCEEDED:
            return "hung" if self.run.status == HUNG else NOT_RECOVERED
        if any(strike.struck is None for strike in self.run.strikes):
            return MISSED
        if all(found.is_equal for found in self.comparisons.values()):
            return EQUAL
        return DIFFERENT if self.is_repeatable else UNREPEATABLE

    @property
    def is_passed(self) -> bool:
        """Whether the run came back, ended as the undisturbed one, and left no process behind."""
        return self.result == EQUAL and not self.run.processes_left

    @property
    def seconds_lost(self) -> float | None:
        """Against the undisturbed run, in the steps that faults were for; None where one of them has not ended."""
        steps = {fault.step for fault in self.faults}
        took = [self.run.seconds(step) for step in steps]
        return None if None in took else sum(filter(None, took)) - self.undisturbed

    @property
    def reason(self) -> str:
        """What is to be said of a result that is not ``equal``; empty of one that is."""
        said = []
        if self.result in (NOT_RECOVERED, HUNG):
            said.append(self.run.message)
        elif self.result == MISSED:
            missed = ", ".join(str(strike.fault) for strike in self.run.strikes if strike.struck is None)
            said.append(f"{missed}: the step had ended before")
        elif self.result != EQUAL:
            said += [f"{name} {why}" for found in self.comparisons.values() for name, why in found.differences.items()]
            if not said:
                said.append("nothing was written that could be compared")
            if self.result == UNREPEATABLE:
                said.append("two undisturbed runs differ so, too")
        if self.run.processes_left:
            said.append(f"{with_count(self.run.processes_left, 'process')} left, ended by the drill")
        return "; ".join(said)

    @property
    def restart_note(self) -> str:
        """Which steps `allranks run` would not have started again, and why; empty if it would have all."""
        if not self.run.left:
            return ""
        steps = ", ".join(self.run.left)
        why = "it had no newer checkpoint with a step or epoch in its name"
        return f"{steps} was started again by the drill; `allranks run` would not have: {why}"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        lost = self.seconds_lost
        return {
            "number": self.number,
            "faults": [_strike_document(strike, self.run) for strike in self.run.strikes],
            "result": self.result,
            "passed": self.is_passed,
            "reason": self.reason,
            "restarted_by_drill": list(self.run.left),
            "note": self.restart_note,
            "runs": self.run.runs,
            "attempts": dict(self.run.attempts),
            "seconds_lost": None if lost is None else round(lost, 3),
            "processes_left": self.run.processes_left,
            "compared": {step: found.document() for step, found in self.comparisons.items()},
        }


@dataclass(frozen=True, slots=True)
class DrillReport:
    """All drills of one command, and the undisturbed run that they are held to."""

    target: str
    folder: Path
    undisturbed: Sequence[UndisturbedStep]
    outcomes: Sequence[DrillOutcome]

    @property
    def is_passed(self) -> bool:
        """Whether each has."""
        return all(outcome.is_passed for outcome in self.outcomes)

    def document(self) -> dict[str, Any]:
        """As JSON, the form that ``allranks drill --json`` prints."""
        return {
            "target": self.target,
            "passed": self.is_passed,
            "folder": str(self.folder),
            "undisturbed": {
                one.name: {
                    "run_id": one.run_id,
                    "seconds": round(one.seconds, 3),
                    "trained_steps": one.trained_steps,
                    "outputs": {name: str(path) for name, path in one.outputs.items()},
                }
                for one in self.undisturbed
            },
            "drills": [outcome.document() for outcome in self.outcomes],
        }


def write_report(folder: Path, document: Mapping[str, Any]) -> None:
    """Write drill.json and its page, drill.html, into a folder."""
    write_json_file(folder / "drill.json", document)
    passed = sum(1 for drill in document["drills"] if drill["passed"])
    shown = {"drilled": document, "rows": list(report_rows(document)), "passed": passed}
    write_text(folder / "drill.html", render_page("drill.html", {}, shown))


def _strike_document(strike: FaultStrike, run: DisturbedRun) -> dict[str, Any]:
    fault, struck, noticed = strike.fault, strike.struck, strike.noticed
    began = run.began.get(fault.step)
    return {
        "action": fault.action,
        "fault": str(fault),
        "corrupt": fault.corrupts,
        "step": fault.step,
        "struck_after_seconds": None if struck is None or began is None else round(struck - began, 3),
        "struck_at_step": strike.at_step,
        "attempt": strike.attempt or None,
        "processes_struck": strike.processes,
        "noticed_after_seconds": None if struck is None or noticed is None else round(noticed - struck, 3),
        "noticed": None if not fault.ends_attempt else noticed is not None and not strike.ended_by_drill,
        "resumed_from_step": strike.resumed_step,
        "steps_repeated": repeated_steps(strike),
        "corrupted": str(strike.corrupted) if strike.corrupted else None,
    }


def repeated_steps(strike: FaultStrike) -> int | None:
    """The steps of the training from the checkpoint that was resumed to the last one logged; None where unknown."""
    if strike.at_step is None or strike.resumed_step is None:
        return None
    return max(0, strike.at_step - strike.resumed_step)


def report_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The table of a report's document, its head first: a row for each fault."""
    yield ("drill", "fault", "struck at", "noticed after", "steps repeated", "time lost", "result")
    for drill in document["drills"]:
        for index, fault in enumerate(drill["faults"]):
            first = index == 0
            yield (
                str(drill["number"]) if first else "",
                f"{fault['action']} {fault['fault']}{', corrupt' if fault['corrupt'] else ''}",
                _struck_words(fault),
                _noticed_words(fault),
                "" if fault["steps_repeated"] is None else str(fault["steps_repeated"]),
                _lost_words(drill["seconds_lost"]) if first else "",
                drill["result"] + (f", {drill['processes_left']} left" if drill["processes_left"] else "")
                if first
                else "",
            )


def _struck_words(fault: Mapping[str, Any]) -> str:
    if fault["struck_after_seconds"] is None:
        return "-"
    step = "" if fault["struck_at_step"] is None else f"step {fault['struck_at_step']}, "
    return f"{step}{fault['struck_after_seconds']:.1f} s"


def _noticed_words(fault: Mapping[str, Any]) -> str:
    after = fault["noticed_after_seconds"]
    if fault["noticed"] is None or fault["struck_after_seconds"] is None:
        return ""
    if not fault["noticed"]:
        return "never" if after is None else f"not within {after:.1f} s"
    return f"{after:.2f} s"


def _lost_words(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"-{duration_words(-seconds)}" if seconds < 0 else duration_words(seconds)
