"""Why a gang has failed: the rank that failed first, what ended it, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.local.aborts import was_aborted_at_exit
from allranks.local.failure_cause import FailureEvidence, classify_failure
from allranks.local.folders import StepFolder
from allranks.local.gang import RankExit, RankGang
from allranks.local.launch.torchrun import words_of_ranks
from allranks.local.plan import PlannedStep
from allranks.local.read_only import locked_input_help
from allranks.local.resources.memory_kills import MemoryLimit, find_memory_limit
from allranks.local.resources.samples import read_samples
from allranks.local.resources.summary import summarise_samples
from allranks.local.result import StepFailure, last_lines
from allranks.local.script_help import failure_help
from allranks.local.snapshot import SnapshotFile
from allranks.local.traces import point_at_sources
from allranks.wording import duration_words, size_words

_STOOD_STILL = re.compile(
    r"^distributed: (?P<who>\S+ \d+ \(node \d+\)) (?P<why>(stands still|makes no progress): .*?)\. "
    r"(?P<own>It|This rank) is ended",
    re.MULTILINE,
)
"""What a rank of our components prints before it ends itself: ``shared/distributed/liveness.py``."""
_WATCHDOG = re.compile(r"^Timeout \((?P<time>[\d:.]+)\)!\n(?:(?:Thread |Current thread |  ).*\n|\n)*\Z", re.MULTILINE)
"""What faulthandler's watchdog prints before it ends a rank: nothing but stacks follow."""
_HANG_LINES, _HANG_BYTES = 2000, 1 << 18  # in which both are looked for: the stacks of many threads follow

_LONG_LOG, _QUOTED = 200, 20  # lines that are looked at, and those of them that are quoted
_MOST_OF_IT = 0.75
"""Of the limit: a peak below that has not filled it alone."""
_MOST_RANKS = 8  # whose ends are quoted when time is up
_LINES, _FEWEST_LINES = 24, 3  # of all of them, and of each at least


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """What is known of an attempt that has failed.

    Attributes:
        inputs: where its data lies.
        time_out: what is to be said of a time that was up; empty if it was not.
        lacked_memory: whether the kernel has killed for want of memory meanwhile; None where that is not known.
        alone: the ranks that had ended before the engine ended the others.
    """

    step: PlannedStep
    folder: StepFolder
    files: list[SnapshotFile]
    python: Path
    inputs: tuple[Path, ...]
    attempt: int
    time_out: str
    lacked_memory: bool | None
    alone: tuple[RankExit, ...]

    def explain(self, first: RankExit, gang: RankGang) -> StepFailure:
        """The first failure of its gang, with the end of the log of the rank that failed first."""
        command = first.command
        who = "the command" if command.rank is None else f"rank {command.rank} on node {command.node}"
        many = self.time_out and len(gang.silences) > 1
        ends = _ends_of_ranks(gang) if many else words_of_ranks(last_lines(command.log, _LONG_LOG), _QUOTED)
        quoted = point_at_sources(ends, self.folder, self.files)
        advice = locked_input_help(quoted, self.inputs) or failure_help(
            quoted, self.step.name, self.step.environment_variables, self.python, self.step.component.code
        )
        message = self.time_out or f"{who} {self._ending(first, gang)}"
        advice = advice or (_stack_advice(quoted) if many else "")
        message = "; ".join(filter(None, (message, advice)))
        return StepFailure(message, command.rank, command.node, command.log, quoted, self._cause(first, gang))

    def _cause(self, first: RankExit, gang: RankGang) -> str:
        if was_aborted_at_exit(first, gang):
            return ""  # no error of the code: the attempt is repeated for it
        stood_still = bool(_who_stood_still(first.command.log))
        was_launched = any(first is one for one in gang.exits)
        last = last_lines(first.command.log)
        timed_out, lacked = bool(self.time_out), self.lacked_memory
        found = FailureEvidence(first, was_launched, self.alone, last, timed_out, lacked, stood_still)
        return classify_failure(found, self.step, self.folder)

    def _ending(self, first: RankExit, gang: RankGang) -> str:
        """What ended the rank."""
        if was_aborted_at_exit(first, gang):
            done = "when its own work seems to have been done (see docs/local-engine.md)"
            return f"{first.reason} while Python ended, {done}"
        if cause := _who_stood_still(first.command.log):
            return f"was ended: {cause}"
        if self.lacked_memory:
            how = "was killed" if first.was_killed else f"{first.reason}; meanwhile the kernel killed a process"
            details = "; ".join(filter(None, [self._peak(first.command.rank), f"next step: {self._next_steps()}"]))
            return f"{how} for want of memory: {details}"
        if not first.was_killed:
            return first.reason
        if self.lacked_memory is None:
            return f"{first.reason}; where nobody has sent it, memory has run out: `dmesg` says so"
        return f"{first.reason}, which somebody or a program has sent: the kernel has not killed for want of memory"

    def _peak(self, rank: int | None) -> str:
        """``peak 11.8 GB of the 12.0 GB that its control group has``; empty of another machine."""
        if not self.step.host.is_this_machine:
            return ""
        samples = [sample for sample in read_samples(self.folder.resources) if sample.get("attempt") == self.attempt]
        used = summarise_samples(samples)
        peak = used.get("memory_peak_bytes")
        if peak is None:
            return memory_words(None, find_memory_limit())
        ranks = used["ranks"]
        own = ranks.get(str(rank), {}).get("memory_peak_bytes") if len(ranks) > 1 else None
        return memory_words(peak, find_memory_limit(), "" if own is None else f", rank {rank} {size_words(own)}")

    def _next_steps(self) -> str:
        return ", ".join(_next_steps(self.step)) + " or more memory"


def _who_stood_still(log: Path) -> str:
    """``it stands still: …`` or ``rank 3 (node 1) stands still: …``, if the rank has ended itself for that."""
    end = "".join(f"{line}\n" for line in last_lines(log, _HANG_LINES, _HANG_BYTES))
    if found := _STOOD_STILL.search(end):
        return f"{'it' if found['own'] == 'It' else found['who']} {found['why']}"
    found = _WATCHDOG.search(end)
    return f"it makes no progress: nothing has moved for {found['time']} (hours, minutes, seconds)" if found else ""


def _ends_of_ranks(gang: RankGang) -> tuple[str, ...]:
    """What each rank printed last, and how long before its time was up; of many those that were silent longest.

    Which of them holds up the others, the engine cannot know: who reads where they stand can.
    """
    silent = sorted(gang.silences, key=lambda one: -one[1])[:_MOST_RANKS]
    count = max(_FEWEST_LINES, _LINES // len(silent))
    found: list[str] = []
    for command, seconds in sorted(silent, key=lambda one: (one[0].node, one[0].rank or 0)):
        found.append(f"rank {command.rank} on node {command.node}, silent for {duration_words(seconds)}:")
        found += [f"  {line}" for line in last_lines(command.log, count)]
    return tuple(found)


def _stack_advice(quoted: Sequence[str]) -> str:
    if any("most recent call first" in line for line in quoted):
        return ""
    return "with faulthandler.register(signal.SIGUSR1) in the script, each rank's log then ends with where it stood"


def memory_words(peak: int | None, limit: MemoryLimit, of_rank: str = "") -> str:
    """The peak of a step, if a look has seen one, beside what it could have had; others may have had a part of it."""
    if peak is None:
        return f"it came before the first look; {limit.owner} has {size_words(limit.size)}"
    words = f"peak {size_words(peak)} of the {size_words(limit.size)} that {limit.owner} has{of_rank}"
    if peak < _MOST_OF_IT * limit.size:
        words += "; other processes had the rest, files in /dev/shm, or it came between two looks"
    return words


def _next_steps(step: PlannedStep) -> Iterator[str]:
    """What makes a step smaller, by the inputs that it has."""
    inputs = step.component.inputs
    yield "a smaller batch_size" if "batch_size" in inputs else "a smaller batch"
    if "loader_workers" in inputs:
        yield "fewer loader_workers"
    if "read" in inputs:
        yield "read: streaming"
    if step.ranks > 1:
        yield f"fewer ranks (--scale {step.name}=NODESxPROCESSES)"
