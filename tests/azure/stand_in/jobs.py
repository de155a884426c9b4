"""Jobs: sent, looked at, listed, cancelled. What becomes of them says ``lifecycle.py``."""

from __future__ import annotations

from typing import Any

from tests.azure.stand_in import lifecycle, rules
from tests.azure.stand_in.exchange import Answer, RefusedError, Request, route
from tests.azure.stand_in.state import WORKSPACE, WORKSPACE_ID, State

JOBS = WORKSPACE_ID + "/jobs"


@route("PUT", JOBS + "/{name}")
def put(request: Request, state: State, name: str) -> Answer:
    if name in state.jobs:
        raise RefusedError(400, "UserError", f"A job {name} exists already; a submitted job cannot be changed.")
    properties = request.json["properties"]
    rules.check_job(state, name, properties)
    studio = {"endpoint": f"https://ml.stand-in.test/runs/{name}?wsid={WORKSPACE_ID}", "jobServiceType": "Studio"}
    document = {
        "id": f"{JOBS}/{name}",
        "name": name,
        "type": "Microsoft.MachineLearningServices/workspaces/jobs",
        "properties": properties | {"services": {"Studio": studio}},
        "systemData": {"createdAt": "2026-12-01T10:00:00Z", "createdBy": "someone"},
    }
    state.jobs[name] = document
    lifecycle.start(state, name, properties)
    return Answer(201, _shown(state, document))


@route("GET", JOBS + "/{name}")
def get(_request: Request, state: State, name: str) -> Answer:
    if name in state.runs and name not in state.jobs:  # a step's job: the service shows its run only
        return Answer(body={"id": f"{JOBS}/{name}", "name": name, "properties": None})
    if name not in state.jobs:
        raise RefusedError(404, "UserError", f"Not found: job {name} in workspace {WORKSPACE}.")
    lifecycle.tick(state, name)
    return Answer(body=_shown(state, state.jobs[name]))


@route("GET", JOBS)
def list_all(_request: Request, state: State) -> Answer:
    newest_first = [_shown(state, document) for document in reversed(state.jobs.values())]
    return Answer(body={"value": newest_first})


@route("POST", JOBS + "/{name}/cancel")
def cancel(_request: Request, state: State, name: str) -> Answer:
    if name not in state.jobs:
        raise RefusedError(404, "UserError", f"Not found: job {name} in workspace {WORKSPACE}.")
    lifecycle.cancel(state, name)
    return Answer(200)


def _shown(state: State, document: dict[str, Any]) -> dict[str, Any]:
    properties = document["properties"] | {"status": state.runs[document["name"]]["status"]}
    return document | {"properties": properties}
