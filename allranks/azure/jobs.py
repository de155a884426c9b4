"""What the service says about jobs and their steps: states, errors, logs; and the wish to cancel one.

A job's steps are runs of its run history. The SDK's public calls list their names and states, but neither their
errors nor the addresses of their logs, which is what somebody wants to see; so the SDK's own client of the run history
is used, as its ``jobs.stream`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from allranks.azure.sdk import child_runs, read_address, run_details
from allranks.errors import UnknownNameError
from allranks.local.result import CANCELLED, FAILED, RUNNING, SUCCEEDED, WAITING
from allranks.redaction import redact

FINAL_STATUSES = (SUCCEEDED, FAILED, CANCELLED)
_WORDS = {
    "Completed": SUCCEEDED,
    "Failed": FAILED,
    "Canceled": CANCELLED,
    "NotResponding": FAILED,
    "Running": RUNNING,
    "Finalizing": RUNNING,
    "CancelRequested": "cancelling",
    "NotStarted": WAITING,
    "Queued": "queued",
    "Paused": "paused",
}
"""The service's words for states in those of a local run; the others are stages of preparation."""
_NO_SUCH_PLACE = ("SubscriptionNotFound", "InvalidSubscriptionId", "ResourceGroupNotFound", "ResourceNotFound")
"""Why the Resource Manager does not find a workspace, in its codes."""


@dataclass(frozen=True, slots=True)
class JobState:
    """One job.

    Attributes:
        status: ``succeeded``, ``failed``, ``cancelled``, ``running``, ``waiting``, or a stage before running.
        studio: the address of its page in Studio.
    """

    name: str
    display_name: str
    experiment: str
    status: str
    studio: str
    created: datetime | None

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {"job": self.name, "status": self.status, "experiment": self.experiment, "studio": self.studio}


@dataclass(frozen=True, slots=True)
class StepState:
    """One step of a job, by its name, dotted for a step of a nested pipeline, and the id of its own run.

    ``error`` is what the service says about its failure; empty without one.
    """

    name: str
    run: str
    status: str
    started: datetime | None
    ended: datetime | None
    error: str
    is_pipeline: bool = False

    @property
    def seconds(self) -> float | None:
        """How long it ran; None while that is not known."""
        if self.started is None or self.ended is None:
            return None
        return (self.ended - self.started).total_seconds()

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {"status": self.status, "seconds": self.seconds, "run": self.run, "error": self.error or None}


def job_state(client: Any, name: str) -> JobState:
    """One job of the workspace; raises UnknownNameError if there is none of this name, else what the SDK raises."""
    from azure.core.exceptions import ResourceNotFoundError

    try:
        return job_state_from(client.jobs.get(name))
    except ResourceNotFoundError as error:
        if name not in str(error) and getattr(error.error, "code", None) in _NO_SUCH_PLACE:
            raise
        hint = "See: allranks runs --azure."
        raise UnknownNameError(f"the workspace {client.workspace_name} has no job {name!r}.", hint) from None


def list_jobs(client: Any, count: int) -> list[JobState]:
    """The newest jobs of the workspace."""
    return [job_state_from(job) for job in islice(client.jobs.list(), count) if job is not None]


def job_state_from(job: Any) -> JobState:
    """What a job of the SDK says, as the service has answered it."""
    context = job.creation_context
    return JobState(
        name=job.name,
        display_name=job.display_name or "",
        experiment=job.experiment_name or "",
        status=status_word(job.status),
        studio=job.studio_url or "",
        created=None if context is None else context.created_at,
    )


def status_word(status: object) -> str:
    """Our word for a state of the service."""
    return _WORDS.get(str(getattr(status, "value", status)), "preparing")


def job_status(client: Any, name: str) -> tuple[str, str]:
    """State and error of a job, as its run tells them."""
    details = run_details(client, name)
    inner = getattr(details.error, "error", None)
    return status_word(details.status), _message(getattr(inner, "message", None))


def list_steps(client: Any, name: str) -> list[StepState]:
    """Every step of a job, those of nested pipelines after their own step, each under a name of its own.

    The service tells display names, which several steps may share: these then have the ids of their runs as well.
    """
    found = list(_steps(client, name, ""))
    shared = {one for one, count in Counter(step.name for step in found).items() if count > 1}
    return [replace(step, name=f"{step.name} ({step.run})") if step.name in shared else step for step in found]


def _steps(client: Any, run: str, prefix: str) -> Iterator[StepState]:
    for child in child_runs(client, run):
        step = StepState(
            name=f"{prefix}{child.get('displayName') or child['runId']}",
            run=child["runId"],
            status=status_word(child.get("status")),
            started=_time(child.get("startTimeUtc")),
            ended=_time(child.get("endTimeUtc")),
            error=_message(((child.get("error") or {}).get("error") or {}).get("message")),
            is_pipeline="PipelineRun" in str(child.get("runType")),
        )
        yield step
        if step.is_pipeline:
            yield from _steps(client, step.run, f"{step.name}.")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _message(text: object) -> str:
    return redact(" ".join(str(text or "").split()))


def list_logs(client: Any, run: str) -> Mapping[str, str]:
    """The logs that a step's processes wrote: name (``user_logs/std_log_process_0.txt``) to their address."""
    files = run_details(client, run).log_files or {}
    own = {name: address for name, address in files.items() if name.startswith("user_logs/")}
    return dict(sorted((own or files).items()))


def read_log(client: Any, address: str) -> str:
    """The text of a log."""
    return redact(read_address(client, address))


def cancel_job(client: Any, name: str) -> JobState:
    """Ask the service to cancel a job, and return what it says then; one that is over stays as it ended."""
    state = job_state(client, name)
    if state.status not in FINAL_STATUSES:
        client.jobs.begin_cancel(name).wait()
        state = job_state(client, name)
    return state
