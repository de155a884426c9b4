"""What kind of thing has ended an attempt: so that what may pass by itself is told from what will come again."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from allranks.local.folders import StepFolder
from allranks.local.gang import RankExit
from allranks.local.plan import PlannedStep
from allranks.local.record_shapes import read_json_file


class FailureCause(StrEnum):
    """Why an attempt has failed; the values are the words that people and JSON are shown."""

    CODE_ERROR = "code error"
    REFUSED = "refused input"
    OUT_OF_MEMORY = "out of memory"
    OUT_OF_DISK = "out of disk"
    TIMED_OUT = "time-out"
    PREEMPTED = "preempted"
    HUNG = "hung"
    LOST_PROCESS = "lost process"
    LOST_NODE = "lost node"
    PORT_IN_USE = "port in use"


_REFUSED = 2
"""The exit code of a Refusal of our components, and of argparse."""
_TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)
_TAKEN = tuple(code for number in (signal.SIGKILL, signal.SIGHUP) for code in (-number, 128 + number))
"""Signals that no process sends itself for a fault of its own, as it does SIGSEGV and SIGABRT."""

_LAST_LINES = 5  # of a log: what stands further up may have been dealt with
_BY_WORDS = (
    (
        FailureCause.PORT_IN_USE,
        re.compile(r"\bEADDRINUSE\b|[Aa]ddress already in use|Could not start gRPC server|\[Errno 98\]"),
    ),
    (
        FailureCause.OUT_OF_DISK,
        re.compile(r"No space left on device|\bENOSPC\b|\[Errno (?:27|28|122)\]|Disk quota exceeded|File too large"),
    ),
    (
        FailureCause.OUT_OF_MEMORY,
        re.compile(
            r"\bMemoryError\b|OutOfMemoryError|CUDA out of memory|std::bad_alloc|Cannot allocate memory|"
            r"RESOURCE_EXHAUSTED"
        ),
    ),
    (FailureCause.HUNG, re.compile(r"\(node \d+\) (?:stands still|makes no progress):|\bWaitTimeoutError\b")),
    (
        FailureCause.LOST_PROCESS,
        re.compile(r"its process ended without a word|Rank 0 \(node 0\) is gone|has stood still for \d+ s since"),
    ),
)
"""What a rank says at its end; the last two are of ``shared/distributed``, where a rank ends because of another."""


@dataclass(frozen=True, slots=True)
class FailureEvidence:
    """What an attempt has left behind.

    Attributes:
        first: how the rank that failed first ended.
        was_launched: whether that is a process that the engine has started itself, and not one that torchrun tells of.
        alone: the ranks that had ended before the engine ended the others.
        last_lines: what it printed last.
        timed_out: its time was up.
        lacked_memory: whether the kernel has killed for want of memory meanwhile; None where that is not known.
        stood_still: it has ended itself because it, or another rank, hung.
    """

    first: RankExit
    was_launched: bool
    alone: Sequence[RankExit]
    last_lines: Sequence[str]
    timed_out: bool
    lacked_memory: bool | None
    stood_still: bool


def classify_failure(found: FailureEvidence, step: PlannedStep, folder: StepFolder) -> FailureCause:
    """The cause of a failed attempt; what nothing else explains is taken for an error of the code."""
    code = found.first.code
    if found.timed_out:
        return FailureCause.TIMED_OUT
    if code == _REFUSED:
        return FailureCause.REFUSED
    if found.stood_still:
        return FailureCause.HUNG
    if found.lacked_memory:
        return FailureCause.OUT_OF_MEMORY
    if code in _TERMINATED:
        return FailureCause.PREEMPTED
    if code in _TAKEN:
        return FailureCause.LOST_NODE if _is_node_lost(found, step) else FailureCause.LOST_PROCESS
    said = _last_words(found, folder)
    for cause, words in _BY_WORDS:
        if words.search(said):
            return cause
    return FailureCause.CODE_ERROR


def _is_node_lost(found: FailureEvidence, step: PlannedStep) -> bool:
    """Whether all ranks of a node, or what had started them, were killed and not one of them."""
    command = found.first.command
    if step.distribution == "mpi":
        ranks = [one for one in found.alone if one.command.rank is not None]
    else:
        ranks = list(found.alone)
    if found.was_launched and (step.launched < step.processes or (step.distribution == "mpi" and command.rank is None)):
        return True
    own = {one.command.rank for one in ranks if one.command.node == command.node and one.code in _TAKEN}
    return step.nodes > 1 and step.processes > 1 and len(own) == step.processes


def _last_words(found: FailureEvidence, folder: StepFolder) -> str:
    """The error file that our components leave, or else the last lines of the log."""
    command = found.first.command
    error = read_json_file(folder.work(command.node) / "logs" / f"error_rank_{command.rank}.json")
    if isinstance(error, dict):
        return f"{error.get('type')}: {error.get('message')}"
    return "\n".join(found.last_lines[-_LAST_LINES:])
