"""What is kept of each attempt of a step: when it ran, on which nodes for how long, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.local.fingerprint import json_digest
from allranks.local.gang import RankGang
from allranks.local.goodput import AttemptSteps
from allranks.local.result import RUNNING, StepFailure

_SECRETS = ("TOKEN", "KEY", "SECRET", "SAS", "PASSWORD")  # in the names of variables that are not shown


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """One attempt.

    Attributes:
        started: seconds since the run began.
        seconds: until its last process ended.
        status: as of a step; ``running`` for the one that goes on.
        nodes: seconds until a node's last process ended, by node; of MPI, which starts them itself, node 0 alone.
        message: what ended it, where it failed; ``cause`` is its kind, as in ``failure_cause.py``.
        steps: those that it made; None while it runs, and where it has logged none.
    """

    started: float
    seconds: float
    status: str
    nodes: Mapping[int, float]
    message: str = ""
    cause: str = ""
    steps: AttemptSteps | None = None

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "started": round(self.started, 3),
            "seconds": round(self.seconds, 3),
            "status": self.status,
            "nodes": {str(node): round(seconds, 3) for node, seconds in sorted(self.nodes.items())},
            "message": self.message,
            "cause": self.cause,
            "first_step": None if self.steps is None else self.steps.first,
            "last_step": None if self.steps is None else self.steps.last,
        }


def attempt_of(
    gang: RankGang,
    began: float,
    status: str = RUNNING,
    failure: StepFailure | None = None,
    steps: AttemptSteps | None = None,
) -> StepAttempt:
    """The attempt whose ranks the gang is or was; ``began`` is when the run did, in monotonic seconds."""
    message, cause = (failure.message, failure.cause) if failure else ("", "")
    now = time.monotonic()
    nodes = {command.node: now - gang.started for command in gang.commands}
    if gang.is_finished:
        ends: dict[int, float] = {}
        for exit_ in gang.exits:
            ends[exit_.command.node] = max(ends.get(exit_.command.node, 0.0), exit_.ended - gang.started)
        nodes |= ends
    return StepAttempt(gang.started - began, max(nodes.values(), default=0.0), status, nodes, message, cause, steps)


def shown_variables(environ: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables that a process gets beside those that are the caller's own, secrets blotted out."""
    return {
        name: "***" if any(word in name.upper() for word in _SECRETS) else value
        for name, value in sorted(environ.items())
        if inherited.get(name) != value
    }


def data_sizes(paths: Mapping[str, Path], fingerprints: Mapping[Path, list[list[str | int]]]) -> dict[str, Any]:
    """What the data of a step was when it began: files, bytes, and a digest of their names, sizes and times."""
    found = {name: fingerprints[path] for name, path in paths.items() if path in fingerprints}
    return {
        name: {
            "files": len(files),
            "bytes": sum(int(size) for _, size, _ in files),
            "fingerprint": json_digest(files)[:12],
        }
        for name, files in found.items()
    }
