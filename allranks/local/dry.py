"""What a run would do: each step's command, variables, inputs, snapshot and reuse; nothing is started or written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

from allranks.local.cache import Cache, Finished
from allranks.local.execution import Execution, Job
from allranks.local.options import Options
from allranks.local.plan import AZURE_PORT, Plan, StepOutput
from allranks.local.stores import Stores
from allranks.local.sweep.sweep import Sweep, execution_of
from allranks.local.sweep.trial import Trial
from allranks.local.variables import inherited
from allranks.redaction import redact_document

RUN = "RUN"  # stands for the id that a run gets when it starts
SECRETS = ("TOKEN", "KEY", "SECRET", "SAS", "PASSWORD")


def dry_run(plan: Plan, options: Options) -> dict[str, Any]:
    """The document that ``allranks run --dry-run --json`` prints.

    Paths that a step will only know when it runs are shown as ``<step.port>``.
    """
    home = options.home
    job = Job(home, home.run(RUN), plan.name, options.python, dict(os.environ), time.monotonic(), Stores(home))
    records = Cache(home, options.reuse_since)
    reusing = options.use_cache and not plan.force_rerun
    finished: dict[str, Finished] = {}
    steps = {}
    for name, step in plan.steps.items():
        execution = execution_of(step, job)
        found = None
        if reusing and all(other in finished for other in step.after) and step.component.is_deterministic:
            found = records.find(execution.identify(finished))
        if found is not None:
            finished[name] = found
        steps[name] = _step(execution, found, {other: records.folder(finished[other]).outputs for other in finished})
    planned = {
        "run_id": None,
        "status": "planned",
        "run_dir": None,
        "outputs": {name: str(output) for name, output in plan.outputs.items()},
        "steps": steps,
    }
    return cast("dict[str, Any]", redact_document(planned))


def _step(execution: Execution, found: Finished | None, published: dict[str, Path]) -> dict[str, Any]:
    search = {}
    if isinstance(execution, Sweep):  # what its trials have in common, with a name for each value that differs
        search = {"sweep": execution.search.identity()}
        execution = Trial(execution, 0, {name: f"<{name}>" for name in execution.search.space})
    step = execution.step
    data = {name: _shown(value, published) for name, value in step.inputs.items() if not isinstance(value, str)}
    outputs = {name: f"<{step.name}.{name}>" for name in step.outputs}
    first = execution.ranks(data, outputs, execution.cluster(AZURE_PORT))[0]
    own = inherited(execution.job.environ, execution.python)
    return {
        "status": "planned",
        "component": step.component.name,
        "command": execution.command,
        "inputs": {**step.literals, **data},
        "outputs": outputs,
        "distribution": step.distribution,
        "nodes": step.nodes,
        "processes": step.processes,
        "timeout": step.timeout,
        "after": list(step.after),
        "snapshot": execution.snapshot_hash,
        "files": [file.path for file in execution.files],
        "reused": found is not None,
        "reused_from": found.run_id if found else None,
        "variables": {
            name: redact(name, value) for name, value in sorted(first.environ.items()) if own.get(name) != value
        },
        **search,
    }


def _shown(value: Path | StepOutput, published: dict[str, Path]) -> str:
    if isinstance(value, StepOutput) and value.step in published:
        return str(published[value.step] / value.port)
    return str(value)


def redact(name: str, value: str) -> str:
    """A variable's value, unless its name says that it is a secret."""
    return "***" if any(word in name.upper() for word in SECRETS) else value
