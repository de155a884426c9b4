"""What is kept of a run: what was asked for, and what has become of each step so far."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, write_json_file
from allranks.local.plan import RunPlan
from allranks.local.result import CANCELLED, FAILED, RUNNING, SUCCEEDED, RunResult
from allranks.redaction import redact_document


def _now() -> float:
    return round(time.time(), 3)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Writes request.json and run.json; ``request`` is what was asked for, as JSON, ``started`` seconds since 1970."""

    folder: RunFolder
    plan: RunPlan
    request: Mapping[str, Any]
    steps: Mapping[str, StepExecution]
    started: float = field(default_factory=_now)

    def write_request(self, definition: Any) -> None:
        """Write what ``--resume`` needs, secrets included, with the pipeline as it was read, as JSON."""
        write_json_file(self.folder.request, {"request": self.request, "definition": definition})

    def write(self, *, running: bool = False, signal: int | None = None) -> RunResult:
        """Write what became of the run, which a signal may have ended, or how far it is; raises OSError."""
        result = self.result(running=running, signal=signal)
        self.keep(result)
        return result

    def keep(self, result: RunResult) -> None:
        """Write this result; raises OSError."""
        write_json_file(self.folder.state, self.document(result))

    def document(self, result: RunResult) -> dict[str, Any]:
        """What run.json says of this result, secrets blotted out."""
        about = {"run_id": self.folder.id, "name": self.plan.name, "pid": os.getpid()}
        return cast("dict[str, Any]", redact_document({**self.request, **about, **result.document()}))

    def result(self, *, running: bool = False, signal: int | None = None) -> RunResult:
        """What became of the run, or how far it is."""
        results = {name: execution.result() for name, execution in self.steps.items()}
        outputs = {
            name: self.steps[output.step].output_path(output.port)
            for name, output in self.plan.outputs.items()
            if results[output.step].outputs
        }
        statuses = {step.status for step in results.values()}
        worst = next((status for status in (FAILED, CANCELLED) if status in statuses), SUCCEEDED)
        status, ended = (RUNNING, None) if running else (worst, max(self.started, _now()))
        return RunResult(self.folder.id, status, self.folder.path, results, outputs, signal, self.started, ended)
