"""What the real service refuses when an asset or a job is created."""

from __future__ import annotations

import re
from typing import Any

from tests.azure.stand_in.exchange import RefusedError
from tests.azure.stand_in.identity import STORAGE
from tests.azure.stand_in.state import REGISTRY, REGISTRY_ID, WORKSPACE_ID, State, Store

_ID = re.compile(
    rf"(?:azureml:)?(?P<place>{WORKSPACE_ID}|(?:azureml:)?//registries/{REGISTRY})/(?P<kind>\w+)/(?P<name>[^/]+)/"
    r"(?:versions|labels)/(?P<version>[^/]+)"
)


def asset(state: State, reference: str, kind: str) -> dict[str, Any]:
    """The asset that a full id names; refuses what is not there."""
    match = _ID.fullmatch(str(reference))
    if match is None or match["kind"] != kind:
        raise RefusedError(400, "UserError", f"{reference!r} is no id of {kind}.")
    store = state.workspace if match["place"] == WORKSPACE_ID else state.registry
    version = match["version"]
    if version == "latest" and store.versions(kind, match["name"]):
        version = list(store.versions(kind, match["name"]))[-1]
    found = store.find(kind, match["name"], version)
    if found is None:
        raise RefusedError(404, "UserError", f"{kind[:-1].capitalize()} {reference} was not found.")
    return found


def check_code(state: State, _store: Store, name: str, properties: dict[str, Any]) -> None:
    """Its files must have been uploaded."""
    prefix = properties["codeUri"].partition(f"/{STORAGE}/")[2]
    if not prefix or not any(path.startswith(prefix) for path in state.blobs):
        raise RefusedError(400, "UserError", f"The code of {name} has not been uploaded to {properties['codeUri']}.")


def check_environment(_state: State, store: Store, name: str, properties: dict[str, Any]) -> None:
    """It is an image or a build; in a registry it has a name of its own."""
    if not properties.get("image") and not properties.get("build"):
        raise RefusedError(400, "UserError", f"Environment {name} has neither an image nor a build context.")
    if store.id == REGISTRY_ID and (properties.get("isAnonymous") or name.startswith("CliV2Anonymous")):
        raise RefusedError(400, "UserError", "Anonymous environments cannot be created in a registry.")


def check_component(state: State, store: Store, name: str, properties: dict[str, Any]) -> None:
    """Its environment, code and inner components must exist."""
    specification = properties["componentSpec"]
    if name != "azureml_anonymous" and re.fullmatch(r"[a-z][a-z\d_]{0,254}", name) is None:
        raise RefusedError(400, "UserError", f"{name!r} is no name for a component.")
    if store.id == REGISTRY_ID and properties.get("isAnonymous"):
        raise RefusedError(400, "UserError", "Anonymous components cannot be created in a registry.")
    if specification["type"] == "pipeline":
        _check_pipeline(state, store, name, specification)
        return
    environment = specification["environment"]
    if store.id == REGISTRY_ID and "registries/" not in environment:
        raise RefusedError(400, "UserError", f"Component {name}: a registry cannot use the environment {environment}.")
    asset(state, environment, "environments")
    if specification.get("code"):
        asset(state, specification["code"], "codes")


def _check_pipeline(state: State, store: Store, name: str, specification: dict[str, Any]) -> None:
    for node in specification["jobs"].values():
        component = (node.get("trial") or node).get("componentId")
        if store.id == REGISTRY_ID and "registries/" not in str(component):
            raise RefusedError(400, "UserError", f"Component {name}: a registry cannot use {component}.")
    _check_steps(state, specification)


def check_job(state: State, name: str, properties: dict[str, Any]) -> None:
    """Components and computes of every step must exist, and every path must be given."""
    if properties.get("jobType") != "Pipeline":
        raise RefusedError(400, "UserError", f"{name} is a {properties.get('jobType')}, and no pipeline job.")
    default = (properties.get("settings") or {}).get("default_compute") or properties.get("computeId")
    for port, given in (properties.get("inputs") or {}).items():
        if given["jobInputType"] != "literal" and not given.get("uri"):
            raise RefusedError(400, "UserError", f"Input {port} has no path.")
    for step, node in properties["jobs"].items():
        _check_compute(state, f"Step {step}", node.get("computeId") or default)
    _check_steps(state, properties)


def _check_steps(state: State, pipeline: dict[str, Any]) -> None:
    for node in pipeline["jobs"].values():
        asset(state, (node.get("trial") or node)["componentId"], "components")


def _check_compute(state: State, what: str, compute: str | None) -> None:
    name = str(compute or "").removeprefix("azureml:").rpartition("/")[2]
    if not name:
        raise RefusedError(400, "UserError", f"{what} has no compute, and the job has no default one.")
    if name != "serverless" and not name.startswith("${{") and name not in state.computes:
        raise RefusedError(404, "ResourceNotFound", f"{what}: the compute {name} was not found.")


CHECKS = {"codes": check_code, "environments": check_environment, "components": check_component}
