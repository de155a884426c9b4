"""What only tests ask for: the log, the state, faults, how jobs end."""

from __future__ import annotations

from typing import Any

from tests.azure.stand_in.exchange import Answer, Request, route
from tests.azure.stand_in.faults import fault_of
from tests.azure.stand_in.state import State
from tests.azure.stand_in.workspace import add_compute

COMPUTES = {
    "cpu-cluster": {"vmSize": "STANDARD_DS3_V2", "vmPriority": "Dedicated"},
    "gpu-cluster": {"vmSize": "STANDARD_ND96ISR_H100_V5", "vmPriority": "Dedicated"},
}
"""The clusters that every test finds."""


def reset(state: State) -> None:
    """As at the start."""
    state.clear()
    for name, cluster in COMPUTES.items():
        add_compute(state, name, {**cluster, "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 8}})


@route("POST", "/control/reset")
def start_again(_request: Request, state: State) -> Answer:
    reset(state)
    return Answer()


@route("POST", "/control/computes")
def add_computes(request: Request, state: State) -> Answer:
    for name, cluster in request.json.items():
        add_compute(state, name, cluster)
    return Answer()


@route("GET", "/control/log")
def log(_request: Request, state: State) -> Answer:
    return Answer(body=state.log)


@route("DELETE", "/control/log")
def forget_log(_request: Request, state: State) -> Answer:
    state.log.clear()
    return Answer()


@route("GET", "/control/state")
def everything(_request: Request, state: State) -> Answer:
    blobs: dict[str, Any] = {path: blob.content.decode("latin-1") for path, blob in state.blobs.items()}
    stores = {"workspace": state.workspace.assets, "registry": state.registry.assets}
    return Answer(body={**stores, "blobs": blobs, "computes": state.computes, "jobs": state.jobs, "runs": state.runs})


@route("POST", "/control/faults")
def add_fault(request: Request, state: State) -> Answer:
    state.faults.append(fault_of(request.json))
    return Answer()


@route("DELETE", "/control/faults")
def no_faults(_request: Request, state: State) -> Answer:
    state.faults.clear()
    return Answer()


@route("POST", "/control/assets")
def put_assets(request: Request, state: State) -> Answer:
    for kind, name, version, properties in request.json:
        document = {"id": f"{state.workspace.id}/{kind}/{name}/versions/{version}", "name": version}
        state.workspace.versions(kind, name)[version] = document | {"properties": properties}
    return Answer()


@route("POST", "/control/script")
def script(request: Request, state: State) -> Answer:
    state.script = request.json
    return Answer()
