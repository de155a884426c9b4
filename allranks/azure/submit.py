"""Sends a job: what it needs in the workspace is asked for first, and an answer that is lost submits nothing twice."""

from __future__ import annotations

import contextlib
import io
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allranks import catalogue, library
from allranks.azure.assemble import AssembledJob
from allranks.azure.client import AssetPlace, Workspace, connect_registry, found_or_none
from allranks.azure.explain import service_errors
from allranks.azure.jobs import JobState, job_state_from
from allranks.azure.retry import call_with_retry
from allranks.azure.sdk import name_component, runs_left_out
from allranks.errors import AzureError, AzureUnavailableError, Problem, SpecError
from allranks.local.settings import all_steps
from allranks.planning.network_waits import network_waits
from allranks.spec import Component, Compute, Pipeline, check_machines
from allranks.spec.check_machines import LOW_PRIORITY, LOW_PRIORITY_HINT, is_low_priority
from allranks.spec.step_sizes import SERVERLESS, check_sizes, described_sizes, step_sizes

_ENVIRONMENT = re.compile(r"azureml:(?P<name>[^:@/]+):(?P<version>[^:@/]+)")


@dataclass(frozen=True, slots=True)
class RegisteredComponents:
    """The library's components are referred to by their ids, in a registry or in the workspace, not sent along."""

    registry: str | None = None

    def id(self, component: str) -> str:
        """The full id of a component of the library, in its one version."""
        place = AssetPlace("workspace" if self.registry is None else "registry", self.registry or "")
        return place.id_of("components", component, library.VERSION)


def name_registered(assembled: AssembledJob, registered: RegisteredComponents) -> dict[str, str]:
    """Let the job name the library's components by their ids; returns step to id.

    A component that was changed for a step goes along as it is, for it is not what was registered.
    """
    ids = {}
    for path, node in _nodes(assembled.job.jobs):
        component = dict(all_steps(assembled.pipeline))[path].component
        if isinstance(component, Component) and _is_ours(component):
            ids[path] = registered.id(component.name)
            name_component(node, ids[path])
    return ids


def _nodes(nodes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, node in nodes.items():
        yield prefix + name, node
        if node.type == "pipeline" and not isinstance(node.component, str):
            yield from _nodes(node.component.jobs, f"{prefix}{name}.")


def _is_ours(component: Component) -> bool:
    file = component.source.file
    return file is not None and file == catalogue.component_files().get(component.name)


def submit_job(
    client: Any,
    workspace: Workspace,
    assembled: AssembledJob,
    registered: RegisteredComponents | None,
    tell: Callable[[str], None],
) -> JobState:
    """Send the job, which cannot be sent a second time, with a client of the workspace.

    ``registered`` says where the library's components are, if they are not to be sent along. ``tell`` hears in one line
    each of the sizes that the steps get, of warnings, and of a service that is busy.

    Raises:
        SpecError: the machines do not fit the steps.
        AzureError: refused; something that the job needs is not there.
        AzureUnavailableError: Azure is not reached or too busy; the hint says how to see whether the job has arrived.
    """
    pipeline, job = assembled.pipeline, assembled.job
    name, doing = name_job(assembled), f"submitting {assembled.title}"
    with service_errors(doing, workspace):
        if assembled.is_named:
            _require_new(client, name, tell)
        ids = {} if registered is None else name_registered(assembled, registered)
        _check_computes(call_with_retry(lambda: list(client.compute.list()), tell), pipeline, workspace, tell)
        _require_assets(client, workspace, pipeline, ids, registered, tell)
    try:
        with service_errors(doing, workspace):
            return call_with_retry(lambda: _send(client, job), tell)
    except AzureUnavailableError as error:
        look = (
            f"Whether {name} has arrived says: allranks runs show --azure {name}. If not, give the same command again."
        )
        raise AzureUnavailableError(error.message, look) from None


def _require_new(client: Any, name: str, tell: Callable[[str], None]) -> None:
    """Refuse a user's own name that a job has: of a conflict ``_send`` cannot tell an older job from its own."""
    if call_with_retry(lambda: found_or_none(lambda: client.jobs.get(name)), tell) is not None:
        message = f"there is a job {name!r} already, and a job that was sent cannot be changed."
        raise AzureError(
            message, "Give the pipeline another `name:`, or leave it out: each job then gets one of its own."
        )


def name_job(assembled: AssembledJob) -> str:
    """The name under which the job is sent, the same at each call: whoever knows it can look for the job."""
    assembled.job.name = assembled.job.name or _new_name(assembled.title)
    return str(assembled.job.name)


def _send(client: Any, job: Any) -> JobState:
    """Create the job; a conflict with itself means that it had arrived and only the answer was lost."""
    from azure.core.exceptions import HttpResponseError

    try:
        # The SDK draws progress bars on standard error; see client._client for why they cannot be turned off.
        with contextlib.redirect_stderr(io.StringIO()), runs_left_out():
            return job_state_from(client.jobs.create_or_update(job))
    except HttpResponseError as error:
        if error.status_code not in (400, 409):
            raise
        found = found_or_none(lambda: client.jobs.get(job.name))
        if found is None:
            raise error from None
        return job_state_from(found)


def _new_name(title: str) -> str:
    """A name that no other job has, and that a person can read: ``image_classification_20261120_101500_3f9c2a``."""
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", title).strip("_").lower()
    return f"{stem[:40] or 'pipeline'}_{datetime.now(UTC):%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"


def _check_computes(
    clusters: Sequence[Any], pipeline: Pipeline, workspace: Workspace, tell: Callable[[str], None]
) -> None:
    """Refuse a cluster that is not there, and machines that do not fit what runs on them."""
    named = {pipeline.settings.default_compute or "", *(step.compute or "" for _, step in all_steps(pipeline))}
    wanted = {name.removeprefix("azureml:") for name in named if name and "${{" not in name and "/" not in name}
    there = sorted(cluster.name for cluster in clusters)
    missing = sorted(wanted - {SERVERLESS, *there})
    if missing:
        raise AzureError(
            f"there is no compute {', '.join(map(repr, missing))} in the {workspace}.",
            f"There is {', '.join([*there, SERVERLESS])}. Choose with --compute NAME.",
        )
    retired = sorted(one.name for one in clusters if one.name in wanted and is_low_priority(getattr(one, "tier", "")))
    if retired:
        raise AzureError(f"the compute {', '.join(map(repr, retired))}: {LOW_PRIORITY}", LOW_PRIORITY_HINT)
    known = {
        cluster.name: Compute(cluster.size, _most_nodes(cluster))
        for cluster in clusters
        if isinstance(getattr(cluster, "size", None), str)
    }
    found = step_sizes(pipeline, known)
    problems: list[Problem] = [*check_machines(pipeline, computes=known), *check_sizes(pipeline, found)]
    problems += network_waits(pipeline, known)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise SpecError(errors)
    for line in (*described_sizes(found), *map(str, problems)):
        tell(line)


def _most_nodes(cluster: Any) -> int | None:
    most = getattr(cluster, "max_instances", None)
    return most if isinstance(most, int) and most > 0 else None


def _require_assets(
    client: Any,
    workspace: Workspace,
    pipeline: Pipeline,
    ids: Mapping[str, str],
    registered: RegisteredComponents | None,
    tell: Callable[[str], None],
) -> None:
    """Refuse, once and together, what of the library is not registered where the job needs it."""
    sent = [step.component for path, step in all_steps(pipeline) if path not in ids]
    references = {one.environment.reference or "" for one in sent if isinstance(one, Component)}
    ours = [_ENVIRONMENT.fullmatch(one) for one in sorted(references) if catalogue.environment_of(one) is not None]
    environments = [(match["name"], match["version"]) for match in ours if match]
    _require("environment", client.environments, environments, tell, workspace, "--workspace")
    if registered is not None and ids:
        names = sorted({dict(all_steps(pipeline))[path].component.name for path in ids})
        components = [(name, library.VERSION) for name in names]
        if registered.registry is None:
            _require("component", client.components, components, tell, workspace, "--workspace")
        else:
            place, option = f"registry {registered.registry}", f"--registry {registered.registry}"
            _require("component", connect_registry(registered.registry).components, components, tell, place, option)


def _require(
    kind: str,
    operations: Any,
    versions: Sequence[tuple[str, str]],
    tell: Callable[[str], None],
    place: object,
    option: str,
) -> None:
    def is_there(name: str, version: str) -> bool:
        return call_with_retry(lambda: found_or_none(lambda: operations.get(name, version)), tell) is not None

    missing = [f"{kind} {name}:{version}" for name, version in versions if not is_there(name, version)]
    if missing:
        message = f"the {place} lacks what the pipeline needs: {', '.join(missing)}."
        raise AzureError(message, f"Register the library: allranks register {option}")
