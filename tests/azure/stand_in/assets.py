"""Codes, environments, components, data and models, in the workspace and in the registry: versions never change."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.azure.stand_in import rules
from tests.azure.stand_in.exchange import Answer, RefusedError, Request, route
from tests.azure.stand_in.state import REGISTRY_ID, WORKSPACE_ID, State, Store
from tests.azure.stand_in.storage import address, signed

KIND = "(?P<kind>codes|environments|components|data|models)"
REGISTRY_PATH = f"/mferp/managementfrontend{REGISTRY_ID}"
PLACES = (WORKSPACE_ID, REGISTRY_PATH)
METADATA = {"description", "tags", "isArchived", "isAnonymous", "display_name", "displayName"}
"""What may change in a version that is there; everything else is immutable."""


def store_of(state: State, request: Request) -> Store:
    return state.registry if request.path.startswith(REGISTRY_PATH) else state.workspace


def put_version(request: Request, state: State, kind: str, name: str, version: str) -> Answer:
    """Create a version, or change no more than the description and tags of one that is there."""
    store, body = store_of(state, request), request.json
    before = store.find(kind, name, version)
    document = {
        "id": _id(store, kind, name, version),
        "name": version,
        "type": f"Microsoft.MachineLearningServices/{store.id.rpartition('/')[0].rpartition('/')[2]}/{kind}/versions",
        "properties": body["properties"] | {"provisioningState": "Succeeded"},
    }
    if before is not None and _fixed(before["properties"]) != _fixed(document["properties"]):
        message = f"{kind[:-1]} {name} with version {version} already exists: a published version cannot be changed."
        raise RefusedError(409, "UserError", message)
    if kind in ("environments", "components", "codes"):
        rules.CHECKS[kind](state, store, name, body["properties"])
    store.versions(kind, name)[version] = document
    return Answer(200 if before else 201, document)


def _fixed(properties: Any) -> str:
    """What cannot change, as text: without metadata, to which the properties belong, except the hash of a code."""
    left_out = METADATA | {"provisioningState"} | (set() if "codeUri" in properties else {"properties"})
    kept = {key: value for key, value in properties.items() if key not in left_out}
    if isinstance(specification := kept.get("componentSpec"), dict):
        kept["componentSpec"] = {key: value for key, value in specification.items() if key not in METADATA}
    return json.dumps({key: value for key, value in kept.items() if value not in (None, {})}, sort_keys=True)


def get_version(request: Request, state: State, kind: str, name: str, version: str) -> Answer:
    """One version; ``azureml_default`` and ``latest`` are the newest."""
    store = store_of(state, request)
    versions = store.versions(kind, name)
    if version in ("azureml_default", "latest") and versions:
        version = list(versions)[-1]
    found = store.find(kind, name, version)
    if found is None:
        raise RefusedError(404, "UserError", f"{kind[:-1].capitalize()} {name}:{version} was not found in {store.id}.")
    return Answer(200, found)


def list_versions(request: Request, state: State, kind: str, name: str) -> Answer:
    """All versions, newest first; codes are looked for by their hash, whatever their name is."""
    store = store_of(state, request)
    if kind == "codes" and "hash" in request.query:
        everything = [version for versions in store.assets.get("codes", {}).values() for version in versions.values()]
        found = [one for one in everything if _hash_of(one) == request.query["hash"]]
        return Answer(body={"value": found[:1]})
    newest_first = list(reversed(store.assets.get(kind, {}).get(name, {}).values()))
    return Answer(body={"value": newest_first[: int(request.query.get("$top", len(newest_first) or 1))]})


def _hash_of(document: dict[str, Any]) -> str | None:
    return (document["properties"].get("properties") or {}).get("hash_sha256")


for place in PLACES:
    route("PUT", f"{place}/{KIND}/{{name}}/versions/{{version}}")(put_version)
    route("GET", f"{place}/{KIND}/{{name}}/versions/{{version}}")(get_version)
    route("GET", f"{place}/{KIND}/{{name}}/versions")(list_versions)


@route("POST", f"{WORKSPACE_ID}/{KIND}/{{name}}/versions/{{version}}/startPendingUpload")
def start_upload(_request: Request, state: State, kind: str, name: str, version: str) -> Answer:
    container = f"{kind}-{uuid.uuid4()}"
    return Answer(
        body={"pendingUploadId": None, "pendingUploadType": "TemporaryBlobReference"} | _place(state, container)
    )


@route("PUT", REGISTRY_PATH + "/tempdatarefs/{name}/versions/{version}")
def temporary_reference(request: Request, state: State, name: str, version: str) -> Answer:
    kind = request.json["assetId"].split("/")[-4]
    if state.registry.find(kind, name, version) is not None:
        raise RefusedError(409, "Conflict", f"{kind} {name}:{version} already exists.")
    return Answer(body=_place(state, f"{kind}-{uuid.uuid4()}"))


def _place(state: State, container: str) -> dict[str, Any]:
    credential = {"credentialType": "SAS", "sasUri": signed(state, container)}
    return {"blobReferenceForConsumption": {"blobUri": address(state, container), "credential": credential}}


def _id(store: Store, kind: str, name: str, version: str) -> str:
    if store.id == REGISTRY_ID:
        return f"azureml://registries/{REGISTRY_ID.rpartition('/')[2]}/{kind}/{name}/versions/{version}"
    return f"{store.id}/{kind}/{name}/versions/{version}"
