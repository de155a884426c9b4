"""Experiments as MLflow's REST API has them."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping
from typing import Any

from allranks.local.tracking.search import SearchColumns, search_entities
from allranks.local.tracking.store import (
    EXISTS,
    INVALID,
    MISSING,
    TrackingError,
    TrackingStore,
    now_ms,
    objects_of,
    text_of,
)

_COLUMNS = SearchColumns(
    kind="experiment",
    owner="experiment_id",
    attributes={
        "name": "name",
        "experiment_id": "experiment_id",
        "creation_time": "created",
        "last_update_time": "updated",
    },
    order="created DESC, experiment_id",
)


def create_experiment(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Create an experiment; the id is a GUID, as on Azure ML."""
    name = text_of(request, "name")
    if store.row("SELECT 1 FROM experiments WHERE name = ?", name):
        raise TrackingError(EXISTS, f"Experiment '{name}' already exists.")
    experiment_id, now = str(uuid.uuid4()), now_ms()
    store.connection.execute(
        "INSERT INTO experiments VALUES (?, ?, ?, 'active', ?, ?)",
        (experiment_id, name, text_of(request, "artifact_location", "") or None, now, now),
    )
    store.set_tags("experiment", experiment_id, objects_of(request, "tags"))
    return {"experiment_id": experiment_id}


def get_experiment(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give an experiment by its id."""
    return {"experiment": _shown(store, _by_id(store, request))}


def get_experiment_by_name(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give an experiment by its name."""
    name = text_of(request, "experiment_name")
    found = store.row("SELECT * FROM experiments WHERE name = ?", name)
    if found is None:
        raise TrackingError(MISSING, f"Could not find experiment with name '{name}'")
    return {"experiment": _shown(store, found)}


def search_experiments(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the experiments that a filter describes, a page at a time."""
    stages = {"ACTIVE_ONLY": ["active"], "DELETED_ONLY": ["deleted"]}
    allowed = stages.get(str(request.get("view_type", "ACTIVE_ONLY")), ["active", "deleted"])
    rows, token = search_entities(store, "experiments", _COLUMNS, request, {"stage": allowed})
    return {"experiments": [_shown(store, row) for row in rows], **token}


def update_experiment(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give an experiment a new name."""
    row, name = _by_id(store, request), text_of(request, "new_name")
    if store.row("SELECT 1 FROM experiments WHERE name = ? AND experiment_id != ?", name, row["experiment_id"]):
        raise TrackingError(EXISTS, f"Experiment '{name}' already exists.")
    _change(store, row, "name", name)
    return {}


def delete_experiment(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Mark an experiment as deleted; nothing of it is lost."""
    _change(store, _by_id(store, request), "stage", "deleted")
    return {}


def restore_experiment(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Take back that an experiment was deleted."""
    _change(store, _by_id(store, request), "stage", "active")
    return {}


def set_experiment_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Set a tag of an experiment."""
    row = _by_id(store, request)
    store.set_tags("experiment", row["experiment_id"], [request])
    return {}


def delete_experiment_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a tag of an experiment."""
    row, key = _by_id(store, request), text_of(request, "key")
    if not store.delete_tag("experiment", row["experiment_id"], key):
        raise TrackingError(MISSING, f"No tag with name: {key} in experiment with ID {row['experiment_id']}")
    return {}


def active_experiment(store: TrackingStore, experiment_id: str) -> sqlite3.Row:
    """Find an experiment that new runs may belong to.

    Raises:
        TrackingError: it is not there, or was deleted.
    """
    row = _by_id(store, {"experiment_id": experiment_id})
    if row["stage"] != "active":
        raise TrackingError(INVALID, f"The experiment {experiment_id} must be in the 'active' state.")
    return row


def ensure_experiment(store: TrackingStore, name: str) -> str:
    """Find the experiment of this name, or make it; one that was deleted is restored. Gives its id."""
    row = store.row("SELECT * FROM experiments WHERE name = ?", name)
    if row is None:
        return str(create_experiment(store, {"name": name})["experiment_id"])
    if row["stage"] != "active":
        _change(store, row, "stage", "active")
    return str(row["experiment_id"])


def _by_id(store: TrackingStore, request: Mapping[str, Any]) -> sqlite3.Row:
    experiment_id = text_of(request, "experiment_id")
    row = store.row("SELECT * FROM experiments WHERE experiment_id = ?", experiment_id)
    if row is None:
        raise TrackingError(MISSING, f"No Experiment with id={experiment_id} exists")
    return row


def _change(store: TrackingStore, row: sqlite3.Row, column: str, value: str) -> None:
    store.connection.execute(
        f"UPDATE experiments SET {column} = ?, updated = ? WHERE experiment_id = ?",
        (value, now_ms(), row["experiment_id"]),
    )


def _shown(store: TrackingStore, row: sqlite3.Row) -> dict[str, Any]:
    experiment_id = row["experiment_id"]
    return {
        "experiment_id": experiment_id,
        "name": row["name"],
        "artifact_location": store.location(experiment_id, row["location"]),
        "lifecycle_stage": row["stage"],
        "creation_time": row["created"],
        "last_update_time": row["updated"],
        "tags": store.pairs("tags", "experiment", experiment_id),
    }
