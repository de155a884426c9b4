"""The way to a workspace or a registry: which one, with what credentials, and what its errors mean to a person."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from allranks.azure.sdk import SDK_LOGGERS, sdk_hint
from allranks.errors import CannotRunHereError, UsageError

_OPTIONS = ("--subscription", "--resource-group", "--workspace")
_VARIABLES = ("AZUREML_ARM_SUBSCRIPTION", "AZUREML_ARM_RESOURCEGROUP", "AZUREML_ARM_WORKSPACE_NAME")
_KEYS = ("subscription_id", "resource_group", "workspace_name")
_WORKSPACE_HINT = (
    f"Give {', '.join(_OPTIONS)}, or set {', '.join(_VARIABLES)}, or put the config.json that Studio offers for"
    " download into this folder."
)

CONNECTION_TIMEOUT = 20.0
READ_TIMEOUT = 90.0
"""Seconds without an answer after which the SDK asks again; its own 300 would be twenty minutes for one request. The
Resource Manager itself gives up after 60."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Workspace:
    """Which workspace is meant."""

    subscription: str
    resource_group: str
    name: str

    def __str__(self) -> str:
        return f"workspace {self.name} of resource group {self.resource_group}"


@dataclass(frozen=True, slots=True)
class AssetPlace:
    """Where assets are registered: in a workspace, or in a registry that several workspaces share."""

    kind: Literal["workspace", "registry"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    def id_of(self, family: str, name: str, version: str) -> str:
        """The id by which other assets there refer to one of the ``environments`` or ``components``."""
        if self.kind == "registry":
            return f"azureml://registries/{self.name}/{family}/{name}/versions/{version}"
        return f"azureml:{name}:{version}"


def find_workspace(
    subscription: str | None = None,
    resource_group: str | None = None,
    name: str | None = None,
    *,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Workspace:
    """The workspace that is meant: what is given wins, one by one, over the variables, and these over config.json.

    The variables are those that Azure ML sets inside a job; they are this process's unless ``environ`` is given.
    config.json is looked for in ``folder``, which is the working folder unless given, and above it, also in a folder
    ``.azureml`` there, as ``MLClient.from_config`` does.

    Raises:
        UsageError: something is missing, or config.json cannot be read.
    """
    given = (subscription, resource_group, name)
    found = _of_variables(os.environ if environ is None else environ) or _of_file(folder or Path.cwd()) or ("", "", "")
    chosen = [one or other for one, other in zip(given, found, strict=True)]
    missing = [option for option, value in zip(_OPTIONS, chosen, strict=True) if not value]
    if missing:
        raise UsageError(f"the workspace is not known: there is no {', no '.join(missing)}.", _WORKSPACE_HINT)
    return Workspace(*chosen)


def _of_variables(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    there = [name for name in _VARIABLES if environ.get(name)]
    missing = [name for name in _VARIABLES if name not in there]
    if there and missing:
        raise UsageError(f"{', '.join(there)} is set, but {', '.join(missing)} is not.", "Set all three, or none.")
    return tuple(environ[name] for name in there) or None


def _of_file(folder: Path) -> tuple[str, ...] | None:
    """What config.json says, the nearest one above the folder."""
    for place in (folder, *folder.resolve().parents):
        for file in (place / ".azureml" / "config.json", place / "config.json"):
            if file.is_file() and (values := _read(file)) is not None:
                return values
    return None


def _read(file: Path) -> tuple[str, ...] | None:
    """The three values; None for a file that is about something else."""
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}.", "Download it from Studio again, or remove it.") from None
    if not isinstance(document, dict) or not any(key in document for key in _KEYS):
        return None
    return tuple(str(document.get(key) or "") for key in _KEYS)


def connect_workspace(workspace: Workspace) -> Any:
    """An MLClient of the workspace; nothing is sent before it is used. Raises CannotRunHereError without the SDK."""
    return _client(
        subscription_id=workspace.subscription,
        resource_group_name=workspace.resource_group,
        workspace_name=workspace.name,
    )


def connect_registry(name: str) -> Any:
    """As ``connect_workspace``, of a registry; asks at once where that is, so errors of the service can come here."""
    return _client(registry_name=name)


def _client(**place: str) -> Any:
    try:
        with quiet_sdk():
            from azure.ai.ml import MLClient
            from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise CannotRunHereError(f"Azure needs the Azure ML SDK, azure-ai-ml ({error}).", sdk_hint()) from None
    with quiet_sdk():
        timeouts = {"connection_timeout": CONNECTION_TIMEOUT, "read_timeout": READ_TIMEOUT}
        # Progress stays on, and callers send its bars elsewhere: without them the SDK loses the errors of an upload and
        # waits for ever (azure-ai-ml 1.35, _asset_utils.upload_directory).
        return MLClient(DefaultAzureCredential(), enable_telemetry=False, **timeouts, **place)


def found_or_none(ask: Callable[[], _T]) -> _T | None:
    """What a request answers; None if the service says that there is no such thing."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        return ask()
    except ResourceNotFoundError:
        return None


def require_sdk(who: str) -> None:
    """Raise CannotRunHereError where the SDK is not installed; ``who`` needs it, for the message."""
    try:
        with quiet_sdk():
            import azure.ai.ml  # noqa: F401
    except ImportError as error:
        raise CannotRunHereError(f"{who} needs the Azure ML SDK, azure-ai-ml ({error}).", sdk_hint()) from None


@contextmanager
def quiet_sdk() -> Iterator[None]:
    """Keep the SDK's notes about experimental classes, and its log lines of errors that it also raises, to itself."""
    azure = [logging.getLogger(name) for name in SDK_LOGGERS]
    levels = [logger.level for logger in azure]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in azure:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(azure, levels, strict=True):
                logger.setLevel(level)
