"""What allranks uses of the SDKs although they do not promise it: private names, a patch, texts that have no code.

Seen in azure-ai-ml 1.35.2 and azure-identity 1.27.0. A release that moves one of them is mended in this file;
``tests/azure/test_sdk.py`` names what a release lacks, and ``explain`` tells a user which release to take. Nothing here
imports the SDK before it is called.
"""

# ruff: noqa: SLF001, PLC0414
# This is the one file that may; the aliases say that others may import them from here.

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from allranks.library import install_command
from allranks.local.ignore import is_left_out

if TYPE_CHECKING:  # for annotations, ours and those of components.pyi: the SDK exports none of the three
    from azure.ai.ml.entities._job.pipeline._io import NodeOutput as NodeOutput
    from azure.ai.ml.entities._job.pipeline._io import PipelineInput as PipelineInput
    from azure.ai.ml.entities._job.sweep.search_space import SweepDistribution as SweepDistribution

TRIED_RELEASES = "azure-ai-ml>=1.35,<1.36"
"""The releases with which all of this was tried, as pip takes them."""

SOURCE_KEY = "_source"
"""Where something was read from (YAML, a builder): the SDK writes it into documents and bodies."""

SDK_LOGGERS = ("azure", "azure.ai.ml", "msrest")
"""What logs errors that are raised as well; the second gets a level of its own when it is imported."""

REGISTRY_LOGGER = "azure.ai.ml._utils._endpoint_utils"
"""Writes about each component of a registry, with a handler and a level of its own."""

_CREDENTIAL = re.compile(r"\w+Credential: ")
_ABSENT = re.compile(r"(?i)unavailable|not (?:found|installed|be found)|requires the|no accounts|please run 'az")
_REFUSED = re.compile(r"(?i)AADSTS|error:|expired|denied")


def sdk_hint() -> str:
    """Return the hint of a message about a missing SDK."""
    return f"Install the SDK with: {install_command('azure')}"


def is_pipeline_function(found: object) -> bool:
    """Whether something is a function with ``@pipeline``, which leaves no other mark."""
    return hasattr(found, "_pipeline_builder")


def pipeline_builder(function: Any) -> Any:
    """What ``@pipeline`` knows of its function: ``inputs``, and ``non_pipeline_parameter_names``."""
    return function._pipeline_builder


def job_of_component(step: Any) -> Any:
    """The pipeline job of a pipeline component with its inputs, as ``jobs.create_or_update`` makes it."""
    return step._to_job()


def given_inputs(node: Any) -> Mapping[str, Any]:
    """What a job or a step was given, by input: the public ``inputs`` are ports, which do not say their value."""
    return dict(node._build_inputs())


def component_of_node(node: Any) -> Any:
    """What a step of any type runs: the component, or the id of one; Azure's full id once its job was sent."""
    return getattr(node, "_component", None)  # a node that decides about others has none


def name_component(node: Any, identifier: str) -> None:
    """Let a step name its component by an id: the public setters are for loading, and a sweep's trial has none."""
    node._component = identifier


def port_setting(port: Any) -> Any:
    """What was set for an output: an Output, a text, another step's port, or None."""
    return port._data


def port_declaration(port: Any) -> Any:
    """What an output's component says of it, or None."""
    return port._meta


def port_name(port: Any) -> str:
    """The name of an output."""
    return str(port._port_name)


def source_path(component: Any) -> str:
    """The file from which a component was loaded; empty for others."""
    return str(getattr(component, "_source_path", None) or "")


def added_attributes(entity: Any) -> Mapping[str, Any]:
    """What a user has set on a step beside its fields: the SDK sends it along. Empty for what takes nothing more."""
    return dict(entity._get_attrs()) if hasattr(type(entity), "_get_attrs") else {}


def entity_document(entity: Any) -> dict[str, Any]:
    """An entity as its YAML would say it; the public ``dump`` writes a file."""
    return dict(entity._to_dict())


def entity_fields(entity: Any) -> Mapping[str, Any]:
    """The fields that an entity's schema (marshmallow) writes into YAML, by name."""
    return dict(entity._schema_for_validation.fields)


def rest_body(entity: Any) -> dict[str, Any]:
    """The body that would be sent; the service's ids of uploaded files do not stand in it yet."""
    return dict(entity._to_rest_object().as_dict())


def yaml_schemas() -> SimpleNamespace:
    """The classes that say which fields the YAML of a job and its parts may have; nothing public lists them."""
    from azure.ai.ml._schema.assets.environment import EnvironmentSchema
    from azure.ai.ml._schema.component.command_component import CommandComponentSchema
    from azure.ai.ml._schema.job_resource_configuration import JobResourceConfigurationSchema
    from azure.ai.ml._schema.pipeline.component_job import (
        CommandSchema,
        ParallelSchema,
        SweepSchema,
    )
    from azure.ai.ml._schema.pipeline.pipeline_component import PipelineComponentSchema, PipelineSchema
    from azure.ai.ml._schema.pipeline.pipeline_job import PipelineJobSchema
    from azure.ai.ml._schema.pipeline.settings import PipelineJobSettingsSchema

    return SimpleNamespace(
        job=PipelineJobSchema,
        job_settings=PipelineJobSettingsSchema,
        command=CommandSchema,
        sweep=SweepSchema,
        parallel=ParallelSchema,
        nested_pipeline=PipelineSchema,
        command_component=CommandComponentSchema,
        pipeline_component=PipelineComponentSchema,
        environment=EnvironmentSchema,
        resources=JobResourceConfigurationSchema,
    )


def environment_body(client: Any, name: str, version: str) -> dict[str, Any]:
    """A registered environment as the service has it."""
    return dict(client.environments._get(name, version).as_dict())


def component_body(client: Any, name: str, version: str) -> dict[str, Any]:
    """A registered component as the service has it: the public getter leaves its properties out."""
    return dict(client.components._get_component_version(name, version).as_dict())


def code_hash(client: Any, name: str, version: str) -> str | None:
    """The sha256 of a registered code asset, which only a private client reads."""
    found: str | None = client._code.get(name=name, version=version).properties.get("hash_sha256")
    return found


def run_details(client: Any, run: str) -> Any:
    """State, error and log files of a job or a step: no public call gives errors and the addresses of logs."""
    return client.jobs._runs_operations.get_run_details(run)


def child_runs(client: Any, run: str) -> Iterator[dict[str, Any]]:
    """The runs below a run, page by page: the SDK's own call never asks for the second page."""
    from azure.core.rest import HttpRequest

    runs, scope = client.jobs._runs_operations._operation, client.jobs._operation_scope
    path = (
        f"/history/v1.0/subscriptions/{scope.subscription_id}/resourceGroups/{scope.resource_group_name}/providers"
        f"/Microsoft.MachineLearningServices/workspaces/{client.workspace_name}/runs/{run}/children"
    )
    parameters: dict[str, str] = {"api-version": runs._config.api_version}
    while True:
        request = HttpRequest("GET", runs._config.endpoint.rstrip("/") + path, params=parameters)
        response = runs._client.send_request(request)
        response.raise_for_status()
        page = response.json()
        yield from page.get("value", [])
        if not page.get("continuationToken"):
            return
        parameters["$continuationtoken"] = page["continuationToken"]


def read_address(client: Any, address: str) -> str:
    """The text behind a signed address, with the client's own time-outs and retries."""
    from azure.core.rest import HttpRequest

    response = client.jobs._requests_pipeline.run(HttpRequest("GET", address)).http_response
    response.raise_for_status()
    return str(response.text())


def upload_hash(folder: Path) -> str:
    """What the SDK calls the folder in a workspace's storage to which it uploads a folder's files."""
    from azure.ai.ml._utils._asset_utils import get_ignore_file, get_object_hash

    return str(get_object_hash(folder, get_ignore_file(folder)))


@contextmanager
def runs_left_out() -> Iterator[None]:
    """Within the block the SDK leaves runs folders out of the code that it lists, hashes and uploads; a patch.

    The SDK honours the one ignore file at the root of the code, which is the user's own: ``code: .`` beside
    ``.allranks/`` would send every model and log of every run.
    """
    from azure.ai.ml.entities._component.code import ComponentIgnoreFile

    original = ComponentIgnoreFile.is_file_excluded
    left_out = functools.cache(is_left_out)  # the SDK asks for each file several times

    def is_file_excluded(self: Any, file_path: str | os.PathLike[str]) -> bool:
        ours = any(map(left_out, _up_to(os.fspath(file_path), os.fspath(self.base_path))))
        return ours or original(self, file_path)

    ComponentIgnoreFile.is_file_excluded = is_file_excluded
    try:
        yield
    finally:
        ComponentIgnoreFile.is_file_excluded = original


def _up_to(path: str, base: str) -> Iterator[str]:
    """A path and the folders above it that lie below the base; whatever is above the base does not matter."""
    path, base = os.path.abspath(path), os.path.abspath(base)  # noqa: PTH100 - Path took a tenth of a submission's processor time
    yield path
    while (path := os.path.dirname(path)) != base and path.startswith(os.path.join(base, "")):  # noqa: PTH118, PTH120
        yield path


def is_missing_name(error: BaseException) -> bool:
    """Whether an error says that this release has not one of the names above."""
    name = getattr(error, "name", None) or ""
    return isinstance(error, AttributeError | ImportError) and name.startswith(("_", "azure."))


def is_of_text_annotations(error: BaseException) -> bool:
    """Whether ``@pipeline`` failed since a module keeps its annotations as text; only the SDK's words tell."""
    return "Unsupported annotation type" in str(error)


def refused_credentials(message: str) -> list[str]:
    """The lines about credentials that are there and were refused, of a message that has one for each kind."""
    lines = [line for line in map(str.strip, message.splitlines()) if _CREDENTIAL.match(line)]
    return [line for line in lines if _REFUSED.search(line) or not _ABSENT.search(line)]
