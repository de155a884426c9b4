"""What a run would do: each step's command, variables, inputs, snapshot and reuse; nothing is started or written."""

from __future__ import annotations

from typing import Any, cast

from allranks.local.cache import FinishedStep, StepCache
from allranks.local.kinds import new_execution
from allranks.local.options import RunOptions
from allranks.local.plan import RunPlan
from allranks.local.run_context import RunContext
from allranks.local.tracking.steps import PlannedTracking
from allranks.redaction import redact_document

_RUN = "RUN"  # stands for the id that a run gets when it starts


def dry_run(plan: RunPlan, options: RunOptions) -> dict[str, Any]:
    """The document that ``allranks run --dry-run --json`` prints.

    Paths that a step will only know when it runs are shown as ``<step.port>``.
    """
    home = options.home
    tracking = PlannedTracking(home, _RUN, plan.experiment)
    context = RunContext(home, home.run(_RUN), plan.experiment, options.python, tracking, request=options.request)
    records = StepCache(home, options.reuse_since(plan))
    reusing = options.reuses(plan)
    finished: dict[str, FinishedStep] = {}
    steps = {}
    for name, step in plan.steps.items():
        execution = new_execution(step, context)
        found = None
        if reusing and all(other in finished for other in step.after) and step.component.is_deterministic:
            found = records.find(execution.identify(finished))
        if found is not None:
            finished[name] = found
        published = {other: one.folder(home).outputs for other, one in finished.items()}
        steps[name] = execution.preview(published, found)
    planned = {
        "run_id": None,
        "status": "planned",
        "run_dir": None,
        "outputs": {name: str(output) for name, output in plan.outputs.items()},
        "steps": steps,
    }
    return cast("dict[str, Any]", redact_document(planned))
