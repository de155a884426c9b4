"""Run history: the runs of a job's steps, their details and logs."""

from __future__ import annotations

from typing import Any

from tests.azure.stand_in import lifecycle
from tests.azure.stand_in.exchange import Answer, RefusedError, Request, route
from tests.azure.stand_in.state import WORKSPACE_ID, State

RUNS = f"/history/v1.0{WORKSPACE_ID}/runs"


@route("GET", RUNS + "/{run}/children")
def get_children(request: Request, state: State, run: str) -> Answer:
    """Pages of no more than ten: a client that reads the first page alone shows itself."""
    _run(state, run)
    found = [_document(state, child) for child in lifecycle.children(state, run)]
    first = int(request.query.get("$continuationtoken", 0))
    page: dict[str, Any] = {"value": found[first : first + 10]}
    if first + 10 < len(found):
        page["continuationToken"] = str(first + 10)
        page["nextLink"] = f"{state.base}{RUNS}/{run}/children?$continuationtoken={first + 10}"
    return Answer(body=page)


@route("GET", RUNS + "/{run}/details")
def details(_request: Request, state: State, run: str) -> Answer:
    found = _run(state, run)
    if run in state.jobs:
        lifecycle.tick(state, run)
    error = {"error": _error(found)} if found["error"] else None
    known = {"runId": run, "status": found["status"], "logFiles": lifecycle.logs(state, run)}
    return Answer(body=known | {"error": error, "properties": {}, "warnings": []})


def _run(state: State, run: str) -> dict[str, Any]:
    if run not in state.runs:
        raise RefusedError(404, "UserError", f"Run {run} was not found.")
    found: dict[str, Any] = state.runs[run]
    return found


def _document(state: State, run: dict[str, Any]) -> dict[str, Any]:
    return {
        "runId": run["name"],
        "parentRunId": run["parent"],
        "displayName": run["display_name"],
        "status": run["status"],
        "runType": "azureml.PipelineRun" if run["pipeline"] else "azureml.StepRun",
        "startTimeUtc": "2026-12-01T10:00:00Z" if run["started"] else None,
        "endTimeUtc": "2026-12-01T10:05:00Z" if run["started"] and run["status"] in lifecycle.OVER else None,
        "error": {"error": _error(run)} if run["error"] else None,
        "tags": {},
        "properties": {},
        "services": {},
    }


def _error(run: dict[str, Any]) -> dict[str, str]:
    return {"code": "UserError", "message": run["error"]}
