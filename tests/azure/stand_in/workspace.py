"""What a workspace has besides assets and jobs: compute clusters and datastores."""

from __future__ import annotations

from typing import Any

from tests.azure.stand_in.exchange import Answer, RefusedError, Request, route
from tests.azure.stand_in.identity import STORAGE
from tests.azure.stand_in.state import WORKSPACE_ID, State
from tests.azure.stand_in.storage import SIGNATURE

COMPUTES = {
    "cpu-cluster": {"vmSize": "STANDARD_DS3_V2", "vmPriority": "Dedicated"},
    "gpu-cluster": {"vmSize": "STANDARD_ND96ISR_H100_V5", "vmPriority": "Dedicated"},
}
"""The clusters that every test finds."""
DATASTORES = {"workspaceblobstore": "azureml-blobstore", "workspaceartifactstore": "azureml"}


@route("GET", WORKSPACE_ID + "/computes")
def list_computes(_request: Request, state: State) -> Answer:
    return Answer(body={"value": list(state.computes.values())})


def add_compute(state: State, name: str, cluster: dict[str, Any]) -> None:
    """Make a cluster of machines, ready for use."""
    properties = {"computeType": "AmlCompute", "provisioningState": "Succeeded", "properties": cluster}
    identity = {"id": f"{WORKSPACE_ID}/computes/{name}", "name": name}
    state.computes[name] = {"location": "westeurope", **identity, "properties": properties}


def reset(state: State) -> None:
    """Forget everything, and add the clusters that every test finds."""
    state.clear()
    for name, cluster in COMPUTES.items():
        add_compute(state, name, {**cluster, "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 8}})


def _datastore(state: State, name: str) -> dict[str, Any]:
    if name not in DATASTORES:
        raise RefusedError(404, "UserError", f"Could not find datastore {name}.")
    properties = {
        "datastoreType": "AzureBlob",
        "accountName": f"{state.base.removeprefix('https://')}/{STORAGE.partition('.')[0]}",
        "containerName": DATASTORES[name],
        "endpoint": STORAGE.partition(".blob.")[2],
        "protocol": "https",
        "credentials": {"credentialsType": "Sas"},
        "isDefault": name == "workspaceblobstore",
    }
    return {"id": f"{WORKSPACE_ID}/datastores/{name}", "name": name, "properties": properties}


@route("GET", WORKSPACE_ID + "/datastores/{name}")
def get_datastore(_request: Request, state: State, name: str) -> Answer:
    return Answer(body=_datastore(state, name))


@route("POST", WORKSPACE_ID + "/datastores/{name}/listSecrets")
def datastore_secrets(_request: Request, _state: State, name: str) -> Answer:
    return Answer(body={"secretsType": "Sas", "sasToken": SIGNATURE})
