"""Runs as MLflow's REST API has them, without what is logged to them: see ``points.py``."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from allranks.local.tracking import JOB_TAG
from allranks.local.tracking.experiments import active_experiment
from allranks.local.tracking.search import SearchColumns, search_entities
from allranks.local.tracking.store import (
    INVALID,
    MISSING,
    TrackingError,
    TrackingStore,
    list_of,
    new_id,
    now_ms,
    objects_of,
    shown_number,
    text_of,
    whole_of,
)

STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
ENDED = ("FINISHED", "FAILED", "KILLED")
_COLUMNS = SearchColumns(
    kind="run",
    owner="run_id",
    attributes={
        "run_id": "run_id",
        "run_name": "name",
        "run name": "name",
        "status": "status",
        "start_time": "started",
        "end_time": "ended",
        "user_id": "user",
        "artifact_uri": "run_id",
        "created": "started",
    },
    order="started DESC, number DESC",
    metrics="(SELECT value FROM latest WHERE run = number AND key = ?)",
)


def create_run(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Create a run, which is then running."""
    experiment_id = text_of(request, "experiment_id", "0")
    active_experiment(store, experiment_id)
    tags = [dict(tag) for tag in objects_of(request, "tags")]
    named = next((str(tag.get("value", "")) for tag in tags if tag.get("key") == "mlflow.runName"), "")
    run_id = new_id()
    name = text_of(request, "run_name", "") or named or f"run-{run_id[:8]}"
    start = whole_of(request, "start_time", 0) or now_ms()
    store.connection.execute(
        "INSERT INTO runs (run_id, experiment_id, name, user, status, started) VALUES (?, ?, ?, ?, 'RUNNING', ?)",
        (run_id, experiment_id, name, text_of(request, "user_id", ""), start),
    )
    own = {"mlflow.runName": name, "mlflow.rootRunId": _root(store, tags) or run_id}
    if job := text_of(request, JOB_TAG, ""):
        own[JOB_TAG] = job
    store.set_tags("run", run_id, [*tags, *({"key": key, "value": value} for key, value in own.items())])
    return get_run(store, {"run_id": run_id})


def _root(store: TrackingStore, tags: Iterable[Mapping[str, Any]]) -> str:
    """The run at the top of those that a new one is nested in, which Azure ML notes too; empty if it is in none."""
    parent = next((str(tag.get("value", "")) for tag in tags if tag.get("key") == "mlflow.parentRunId"), "")
    found = store.row("SELECT value FROM tags WHERE kind = 'run' AND owner = ? AND key = 'mlflow.rootRunId'", parent)
    return str(found["value"]) if found else parent


def get_run(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give a run with the last value of each metric."""
    row = find_run(store, request)
    return {"run": _shown(store, row)}


def update_run(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Change a run's status, end and name.

    A job's own run stays as it is, though no error says so: azureml-mlflow's AzureMLRestStore.update_run_info leaves
    out every such request for it. Each rank would end it, and ``start_run(run_name=...)`` would give it another name.
    """
    row = find_run(store, request)
    status = _status(request)
    if row["managed"]:
        return {"run_info": _info(store, row)}
    if status:
        ended = whole_of(request, "end_time", 0) or None
        store.connection.execute(
            "UPDATE runs SET status = ?, ended = ? WHERE number = ?",
            (status, (ended or now_ms()) if status in ENDED else None, row["number"]),
        )
    if name := text_of(request, "run_name", ""):
        store.connection.execute("UPDATE runs SET name = ? WHERE number = ?", (name, row["number"]))
        store.set_tags("run", row["run_id"], [{"key": "mlflow.runName", "value": name}])
    return {"run_info": _info(store, find_run(store, request))}


def _status(request: Mapping[str, Any]) -> str:
    status = request.get("status")
    if isinstance(status, int):  # an enumeration may travel as its number, from 1
        status = STATUSES[status - 1] if 0 < status <= len(STATUSES) else str(status)
    if status and status not in STATUSES:
        raise TrackingError(INVALID, f"Invalid value '{status}' for parameter 'status': one of {', '.join(STATUSES)}.")
    return status or ""


def delete_run(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Mark a run as deleted; nothing of it is lost."""
    store.connection.execute(
        "UPDATE runs SET stage = 'deleted' WHERE number = ?", (find_run(store, request)["number"],)
    )
    return {}


def restore_run(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Take back that a run was deleted."""
    store.connection.execute("UPDATE runs SET stage = 'active' WHERE number = ?", (find_run(store, request)["number"],))
    return {}


def search_runs(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the runs of some experiments that a filter describes, a page at a time."""
    experiments = [str(one) for one in list_of(request, "experiment_ids")]
    stages = {"DELETED_ONLY": ["deleted"], "ALL": ["active", "deleted"]}
    allowed = stages.get(str(request.get("run_view_type", "ACTIVE_ONLY")), ["active"])
    rows, token = search_entities(store, "runs", _COLUMNS, request, {"experiment_id": experiments, "stage": allowed})
    return {"runs": [_shown(store, row) for row in rows], **token}


def find_run(store: TrackingStore, request: Mapping[str, Any]) -> sqlite3.Row:
    """Find the run that a request names; clients before 1.0 call its id ``run_uuid``.

    Raises:
        TrackingError: there is no such run.
    """
    run_id = text_of(request, "run_id", "") or text_of(request, "run_uuid", "")
    if not run_id:
        raise TrackingError(INVALID, "Missing value for required parameter 'run_id'.")
    row = store.row("SELECT * FROM runs WHERE run_id = ?", run_id)
    if row is None:
        raise TrackingError(MISSING, f"Run with id={run_id} not found")
    return row


def active_run(store: TrackingStore, request: Mapping[str, Any]) -> sqlite3.Row:
    """Find the run that a request names, to log to it.

    Raises:
        TrackingError: there is no such run, or it was deleted.
    """
    row = find_run(store, request)
    if row["stage"] != "active":
        message = f"The run {row['run_id']} must be in the 'active' state. Current state is {row['stage']}."
        raise TrackingError(INVALID, message)
    return row


def artifact_uri(store: TrackingStore, row: sqlite3.Row) -> str:
    """Where the files of a run lie."""
    found = store.row("SELECT location FROM experiments WHERE experiment_id = ?", row["experiment_id"])
    base = store.location(row["experiment_id"], found["location"] if found else None)
    return f"{base.rstrip('/')}/{store.folder(row['run_id']).name}/artifacts"


def _info(store: TrackingStore, row: sqlite3.Row) -> dict[str, Any]:
    info = {
        "run_id": row["run_id"],
        "run_uuid": row["run_id"],
        "run_name": row["name"],
        "experiment_id": row["experiment_id"],
        "user_id": row["user"],
        "status": row["status"],
        "start_time": row["started"],
        "artifact_uri": artifact_uri(store, row),
        "lifecycle_stage": row["stage"],
    }
    return info if row["ended"] is None else {**info, "end_time": row["ended"]}


def _shown(store: TrackingStore, row: sqlite3.Row) -> dict[str, Any]:
    latest = store.connection.execute("SELECT key, value, time, step FROM latest WHERE run = ?", (row["number"],))
    metrics = [
        {"key": key, "value": shown_number(value), "timestamp": when, "step": step, "run_id": row["run_id"]}
        for key, value, when, step in latest
    ]
    data = {
        "metrics": metrics,
        "params": store.pairs("params", "run", row["run_id"]),
        "tags": store.pairs("tags", "run", row["run_id"]),
    }
    documents = store.connection.execute("SELECT document FROM datasets WHERE run = ?", (row["number"],))
    inputs = {"dataset_inputs": [json.loads(document) for (document,) in documents]}
    return {"info": _info(store, row), "data": data, "inputs": inputs}
