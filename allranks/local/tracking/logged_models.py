"""Logged models, which MLflow has from version 3 on: a model is an entity of its own, beside the run that made it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from allranks.local.tracking.experiments import active_experiment
from allranks.local.tracking.points import shown_point
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
    text_of,
)

STATUSES = (
    "LOGGED_MODEL_STATUS_UNSPECIFIED",
    "LOGGED_MODEL_PENDING",
    "LOGGED_MODEL_READY",
    "LOGGED_MODEL_UPLOAD_FAILED",
)
_KIND = "logged_model"
_COLUMNS = SearchColumns(
    kind=_KIND,
    owner="logged_models.model_id",
    attributes={
        "name": "name",
        "model_id": "model_id",
        "model_type": "type",
        "status": "status",
        "source_run_id": "run_id",
        "experiment_id": "experiment_id",
        "creation_timestamp": "created",
        "creation_time": "created",
        "last_updated_timestamp": "updated",
        "last_updated_time": "updated",
    },
    order="created DESC, model_id",
    metrics="(SELECT value FROM metrics WHERE metrics.model_id = logged_models.model_id AND key = ?"
    " ORDER BY step DESC, time DESC LIMIT 1)",
)


def create_logged_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Create a model whose files the client is about to write."""
    experiment_id, model_id, now = text_of(request, "experiment_id"), f"m-{new_id()}", now_ms()
    active_experiment(store, experiment_id)
    store.connection.execute(
        "INSERT INTO logged_models VALUES (?, ?, ?, ?, ?, ?, 'active', ?, ?)",
        (
            model_id,
            experiment_id,
            text_of(request, "name", "model"),
            STATUSES[1],
            text_of(request, "source_run_id", ""),
            text_of(request, "model_type", ""),
            now,
            now,
        ),
    )
    _add_params(store, model_id, request)
    store.set_tags(_KIND, model_id, objects_of(request, "tags"))
    return get_logged_model(store, {"model_id": model_id})


def get_logged_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give a model by its id."""
    return {"model": _shown(store, _find(store, request))}


def finalize_logged_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Note that the files are written, or that this has failed."""
    model_id = _find(store, request)["model_id"]
    status = request.get("status")
    if isinstance(status, int) and 0 <= status < len(STATUSES):
        status = STATUSES[status]
    if status not in STATUSES:
        raise TrackingError(INVALID, f"Invalid value '{status}' for parameter 'status': one of {', '.join(STATUSES)}.")
    values = (status, now_ms(), model_id)
    store.connection.execute("UPDATE logged_models SET status = ?, updated = ? WHERE model_id = ?", values)
    return get_logged_model(store, {"model_id": model_id})


def delete_logged_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Mark a model as deleted; its files stay."""
    values = (now_ms(), _find(store, request)["model_id"])
    store.connection.execute("UPDATE logged_models SET stage = 'deleted', updated = ? WHERE model_id = ?", values)
    return {}


def search_logged_models(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the models of some experiments that a filter describes, a page at a time."""
    experiments = [str(one) for one in list_of(request, "experiment_ids")]
    orders = [
        f"{text_of(order, 'field_name')} {'ASC' if order.get('ascending', True) else 'DESC'}"
        for order in objects_of(request, "order_by")
    ]
    within = {"experiment_id": experiments, "stage": ["active"]}
    rows, token = search_entities(store, "logged_models", _COLUMNS, {**request, "order_by": orders}, within)
    return {"models": [_shown(store, row) for row in rows], **token}


def set_logged_model_tags(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Set tags of a model."""
    model_id = _find(store, request)["model_id"]
    store.set_tags(_KIND, model_id, objects_of(request, "tags"))
    return get_logged_model(store, {"model_id": model_id})


def delete_logged_model_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a tag of a model."""
    model_id, key = _find(store, request)["model_id"], text_of(request, "tag_key")
    if not store.delete_tag(_KIND, model_id, key):
        raise TrackingError(MISSING, f"No tag with key {key!r} found for model with ID {model_id!r}.")
    return {}


def log_logged_model_params(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Log params of a model."""
    _add_params(store, _find(store, request)["model_id"], request)
    return {}


def model_files(store: TrackingStore, model_id: str) -> str:
    """Where the files of a model lie, as a URI."""
    return _uri(store, _find(store, {"model_id": model_id}))


def _find(store: TrackingStore, request: Mapping[str, Any]) -> sqlite3.Row:
    model_id = text_of(request, "model_id")
    row = store.row("SELECT * FROM logged_models WHERE model_id = ? AND stage = 'active'", model_id)
    if row is None:
        raise TrackingError(MISSING, f"Logged model with ID '{model_id}' not found.")
    return row


def _add_params(store: TrackingStore, model_id: str, request: Mapping[str, Any]) -> None:
    rows = [
        (_KIND, model_id, text_of(param, "key"), str(param.get("value", ""))) for param in objects_of(request, "params")
    ]
    store.connection.executemany("INSERT OR REPLACE INTO params VALUES (?, ?, ?, ?)", rows)


def _uri(store: TrackingStore, row: sqlite3.Row) -> str:
    found = store.row("SELECT location FROM experiments WHERE experiment_id = ?", row["experiment_id"])
    base = store.location(row["experiment_id"], found["location"] if found else None)
    return f"{base.rstrip('/')}/models/{store.folder(row['model_id']).name}/artifacts"


def _shown(store: TrackingStore, row: sqlite3.Row) -> dict[str, Any]:
    model_id = row["model_id"]
    points = store.connection.execute(
        "SELECT metrics.*, run_id FROM metrics JOIN runs ON number = run WHERE model_id = ? ORDER BY seq", (model_id,)
    )
    latest = {(point["key"], point["dataset"]): shown_point(point, point["run_id"]) for point in points}
    info = {
        "model_id": model_id,
        "experiment_id": row["experiment_id"],
        "name": row["name"],
        "creation_timestamp_ms": row["created"],
        "last_updated_timestamp_ms": row["updated"],
        "artifact_uri": _uri(store, row),
        "status": row["status"],
        "model_type": row["type"],
        "source_run_id": row["run_id"],
        "tags": store.pairs("tags", _KIND, model_id),
    }
    return {
        "info": info,
        "data": {"params": store.pairs("params", _KIND, model_id), "metrics": list(latest.values())},
    }
