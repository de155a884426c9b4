"""Who the client is, and where things are: cloud metadata, tokens, the workspace, discovery."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.azure.stand_in.exchange import Answer, RefusedError, Request, route
from tests.azure.stand_in.state import (
    GROUP_ID,
    PROVIDER,
    REGISTRY,
    RESOURCE_GROUP,
    SUBSCRIPTION,
    TENANT,
    WORKSPACE,
    State,
)

IDENTITY_HEADER = "stand-in"
EXPIRES = 4102444800
"""When every token expires, in seconds since 1970: the year 2100."""
STORAGE = "storage.blob.stand-in"
"""The SDK makes a storage address of an account's name, ``.blob.`` and a suffix; names below localhost do not resolve
everywhere, so the account's name is the server's address and this its path."""


@route("GET", "/metadata.*")
def metadata(_request: Request, state: State) -> Answer:
    cloud = {
        "name": "StandIn",
        "portal": "https://portal.stand-in.test/",
        "resourceManager": f"{state.base}/",
        "authentication": {"loginEndpoint": state.base},
        "suffixes": {"storage": STORAGE.removeprefix("storage.blob.")},
    }
    return Answer(body=[cloud])


@route("GET", "/identity/token")
def token(request: Request, _state: State) -> Answer:
    if request.headers.get("x-identity-header") != IDENTITY_HEADER:
        raise RefusedError(401, "Unauthorized", "The identity header is wrong.")
    claims = {"aud": request.query["resource"], "tid": TENANT, "exp": EXPIRES, "oid": "someone"}
    document = {"access_token": _jwt(claims), "expires_on": str(EXPIRES), "resource": request.query["resource"]}
    return Answer(body=document | {"token_type": "Bearer"})


def _jwt(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])


def check_token(request: Request) -> None:
    """Refuse a call to Azure's own addresses without a bearer token."""
    open_to_all = ("/metadata", "/identity", f"/{STORAGE}", "/discovery")
    if not request.path.startswith(open_to_all) and not request.headers.get("authorization", "").startswith("Bearer "):
        raise RefusedError(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")


def check_place(request: Request) -> None:
    """Refuse what lies in another subscription, resource group or workspace."""
    parts = request.path.split("/")
    if request.path.startswith("/subscriptions/") and parts[2] != SUBSCRIPTION:
        raise RefusedError(404, "SubscriptionNotFound", f"The subscription '{parts[2]}' could not be found.")
    if len(parts) > 4 and parts[3] == "resourceGroups" and parts[4] != RESOURCE_GROUP:
        raise RefusedError(404, "ResourceGroupNotFound", f"Resource group '{parts[4]}' could not be found.")
    if len(parts) > 8 and parts[7] == "workspaces" and parts[8] != WORKSPACE:
        raise RefusedError(
            404,
            "ResourceNotFound",
            f"The Resource 'Microsoft.MachineLearningServices/workspaces/{parts[8]}' under resource group "
            f"'{RESOURCE_GROUP}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
        )


@route("GET", f"{GROUP_ID}{PROVIDER}/workspaces/{WORKSPACE}")
def workspace(_request: Request, state: State) -> Answer:
    properties = {
        "workspaceId": "11111111-0000-0000-0000-000000000000",
        "discoveryUrl": f"{state.base}/discovery",
        "mlFlowTrackingUri": f"azureml://{state.base.removeprefix('https://')}/mlflow/v1.0{state.workspace.id}",
        "storageAccount": f"{GROUP_ID}/providers/Microsoft.Storage/storageAccounts/storage",
        "provisioningState": "Succeeded",
    }
    document = {"id": state.workspace.id, "name": WORKSPACE, "location": "westeurope", "kind": "Default"}
    return Answer(body=document | {"properties": properties, "identity": {"type": "SystemAssigned"}})


@route("GET", "/discovery")
def discovery(_request: Request, state: State) -> Answer:
    return Answer(body={"api": state.base, "history": state.base, "mlflow": state.base, "experimentation": state.base})


@route("GET", "/registrymanagement/v1.0/registries/{name}/discovery")
def registry_discovery(_request: Request, state: State, name: str) -> Answer:
    if name != REGISTRY:
        raise RefusedError(404, "RegistryNotFound", f"Registry {name} was not found.")
    where = {"primaryRegionResourceProviderUri": f"{state.base}/", "primaryRegion": "westeurope"}
    return Answer(body={"registryName": name, "subscriptionId": SUBSCRIPTION, "resourceGroup": RESOURCE_GROUP} | where)
