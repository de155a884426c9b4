"""The registry of models: names, versions, stages and aliases, as ``mlflow.register_model`` and its like use them.

It belongs to the runs folder: nothing of it reaches a workspace.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from allranks.local.tracking.search import SearchColumns, search_entities
from allranks.local.tracking.store import (
    ABSENT,
    EXISTS,
    INVALID,
    MISSING,
    TrackingError,
    TrackingStore,
    list_of,
    now_ms,
    objects_of,
    text_of,
    whole_of,
)

STAGES = ("None", "Staging", "Production", "Archived")
_MODEL, _VERSION = "registered_model", "model_version"
_PROMPT_TAG = "mlflow.prompt.is_prompt"
_FILTER = re.compile(
    r"""(?i)(name\s*(?:=|\bI?LIKE\b)\s*(?:'(?:[^']|'')*'|"[^"]*"))?"""
    rf"(?: AND )?(?:tags?\.`{re.escape(_PROMPT_TAG)}` != 'true')?"
)
_MODELS = SearchColumns(
    kind=_MODEL,
    owner="name",
    attributes={
        "name": "name",
        "creation_timestamp": "created",
        "last_updated_timestamp": "updated",
        "timestamp": "updated",
    },
    order="name",
)
_VERSIONS = SearchColumns(
    kind=_VERSION,
    owner="name || '/' || version",
    attributes={
        "name": "name",
        "version_number": "version",
        "creation_timestamp": "created",
        "last_updated_timestamp": "updated",
    },
    order="updated DESC, name, version DESC",
)


def create_registered_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Create a name for versions of a model."""
    name, now = text_of(request, "name"), now_ms()
    if any(tag.get("key") == _PROMPT_TAG for tag in objects_of(request, "tags")):
        raise TrackingError(
            ABSENT, "Azure ML's tracking server has no prompts (MLflow 3). Keep the prompt in a file of the step."
        )
    if store.row("SELECT 1 FROM registered_models WHERE name = ?", name):
        raise TrackingError(EXISTS, f"Registered Model (name={name}) already exists.")
    values = (name, text_of(request, "description", ""), now, now)
    store.connection.execute("INSERT INTO registered_models VALUES (?, ?, ?, ?)", values)
    store.set_tags(_MODEL, name, objects_of(request, "tags"))
    return get_registered_model(store, request)


def get_registered_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give a registered model with the latest version of each stage."""
    return {"registered_model": _shown_model(store, _model(store, request))}


def update_registered_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Change the description of a registered model."""
    values = (text_of(request, "description", ""), now_ms(), _model(store, request)["name"])
    store.connection.execute("UPDATE registered_models SET description = ?, updated = ? WHERE name = ?", values)
    return get_registered_model(store, request)


def delete_registered_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a name and its versions; the files stay."""
    name = _model(store, request)["name"]
    for table in ("registered_models", "model_versions", "aliases"):
        store.connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
    store.connection.execute("DELETE FROM tags WHERE kind = ? AND owner = ?", (_MODEL, name))
    store.connection.execute(
        "DELETE FROM tags WHERE kind = ? AND substr(owner, 1, ?) = ?", (_VERSION, len(name) + 1, f"{name}/")
    )
    return {}


def search_registered_models(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the registered models of a name, or all, a page at a time."""
    rows, token = search_entities(store, "registered_models", _MODELS, _by_name(request), {})
    return {"registered_models": [_shown_model(store, row) for row in rows], **token}


def get_latest_versions(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the latest version of each stage."""
    stages = [_stage(str(stage)) for stage in list_of(request, "stages")] or list(STAGES)
    return {"model_versions": _latest(store, _model(store, request)["name"], stages)}


def set_registered_model_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Set a tag of a registered model."""
    store.set_tags(_MODEL, _model(store, request)["name"], [request])
    return {}


def delete_registered_model_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a tag of a registered model."""
    store.delete_tag(_MODEL, _model(store, request)["name"], text_of(request, "key"))
    return {}


def set_alias(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Let an alias stand for a version."""
    row = _version(store, request)
    values = (row["name"], text_of(request, "alias"), row["version"])
    store.connection.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", values)
    return {}


def delete_alias(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete an alias."""
    values = (_model(store, request)["name"], text_of(request, "alias"))
    store.connection.execute("DELETE FROM aliases WHERE name = ? AND alias = ?", values)
    return {}


def get_version_by_alias(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the version that an alias stands for."""
    name, alias = _model(store, request)["name"], text_of(request, "alias")
    found = store.row("SELECT version FROM aliases WHERE name = ? AND alias = ?", name, alias)
    if found is None:
        raise TrackingError(INVALID, f"Registered model alias {alias} not found.")
    return get_version(store, {"name": name, "version": found["version"]})


def create_version(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Create the next version of a registered model."""
    name, now = _model(store, request)["name"], now_ms()
    last = store.row("SELECT max(version) AS last FROM model_versions WHERE name = ?", name)
    version = ((last["last"] if last else None) or 0) + 1
    optional = {key: text_of(request, key, "") for key in ("run_id", "run_link", "description")}
    store.connection.execute(
        "INSERT INTO model_versions VALUES (:name, :version, :source, :run_id, :run_link, :description, 'None', :now,"
        " :now)",
        {**optional, "name": name, "version": version, "source": text_of(request, "source"), "now": now},
    )
    store.set_tags(_VERSION, f"{name}/{version}", objects_of(request, "tags"))
    store.connection.execute("UPDATE registered_models SET updated = ? WHERE name = ?", (now, name))
    return get_version(store, {"name": name, "version": version})


def get_version(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give a version of a registered model."""
    return {"model_version": _shown_version(store, _version(store, request))}


def update_version(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Change the description of a version."""
    return _change(store, _version(store, request), "description", text_of(request, "description", ""))


def transition_stage(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Put a version into a stage; those that are there may be archived."""
    row, stage = _version(store, request), _stage(text_of(request, "stage"))
    if request.get("archive_existing_versions") in {True, "true"}:
        store.connection.execute(
            "UPDATE model_versions SET stage = 'Archived', updated = ? WHERE name = ? AND stage = ? AND version != ?",
            (now_ms(), row["name"], stage, row["version"]),
        )
    return _change(store, row, "stage", stage)


def delete_version(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a version; its files stay."""
    row = _version(store, request)
    for table in ("model_versions", "aliases"):
        store.connection.execute(f"DELETE FROM {table} WHERE name = ? AND version = ?", (row["name"], row["version"]))
    store.connection.execute("DELETE FROM tags WHERE kind = ? AND owner = ?", (_VERSION, _owner(row)))
    return {}


def search_versions(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give the versions of the models of a name, or all, a page at a time."""
    rows, token = search_entities(store, "model_versions", _VERSIONS, _by_name(request), {})
    return {"model_versions": [_shown_version(store, row) for row in rows], **token}


def get_download_uri(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give where the files of a version lie."""
    return {"artifact_uri": _version(store, request)["source"]}


def set_version_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Set a tag of a version."""
    store.set_tags(_VERSION, _owner(_version(store, request)), [request])
    return {}


def delete_version_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a tag of a version."""
    store.delete_tag(_VERSION, _owner(_version(store, request)), text_of(request, "key"))
    return {}


def _by_name(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with a filter by name, without the condition that MLflow 3 adds to leave out prompts.

    Raises:
        TrackingError: the filter has another condition.
    """
    text = text_of(request, "filter", "")
    match = _FILTER.fullmatch(text.strip())
    if match is None:
        rule = "Models are searched by name only: name = 'x' or name LIKE 'x%'."
        raise TrackingError(INVALID, f"Invalid filter string {text[:200]!r}. {rule}")
    return {**request, "filter": match[1] or ""}


def _model(store: TrackingStore, request: Mapping[str, Any]) -> sqlite3.Row:
    name = text_of(request, "name")
    row = store.row("SELECT * FROM registered_models WHERE name = ?", name)
    if row is None:
        raise TrackingError(MISSING, f"Registered Model with name={name} not found")
    return row


def _version(store: TrackingStore, request: Mapping[str, Any]) -> sqlite3.Row:
    name, version = text_of(request, "name"), whole_of(request, "version", 0)
    row = store.row("SELECT * FROM model_versions WHERE name = ? AND version = ?", name, version)
    if row is None:
        raise TrackingError(MISSING, f"Model Version (name={name}, version={version}) not found")
    return row


def _owner(row: sqlite3.Row) -> str:
    return f"{row['name']}/{row['version']}"


def _change(store: TrackingStore, row: sqlite3.Row, column: str, value: str) -> dict[str, Any]:
    values = (value, now_ms(), row["name"], row["version"])
    store.connection.execute(
        f"UPDATE model_versions SET {column} = ?, updated = ? WHERE name = ? AND version = ?", values
    )
    return get_version(store, dict(row))


def _stage(stage: str) -> str:
    found = {known.lower(): known for known in STAGES}.get(stage.lower())
    if found is None:
        raise TrackingError(INVALID, f"Invalid Model Version stage: {stage}. Value must be one of {', '.join(STAGES)}.")
    return found


def _latest(store: TrackingStore, name: str, stages: list[str]) -> list[dict[str, Any]]:
    rows = store.connection.execute("SELECT * FROM model_versions WHERE name = ? ORDER BY version", (name,))
    latest = {row["stage"]: row for row in rows}
    return [_shown_version(store, latest[stage]) for stage in stages if stage in latest]


def _shown_model(store: TrackingStore, row: sqlite3.Row) -> dict[str, Any]:
    name = row["name"]
    aliases = store.connection.execute("SELECT alias, version FROM aliases WHERE name = ? ORDER BY alias", (name,))
    return {
        "name": name,
        "creation_timestamp": row["created"],
        "last_updated_timestamp": row["updated"],
        "description": row["description"],
        "latest_versions": _latest(store, name, list(STAGES)),
        "tags": store.pairs("tags", _MODEL, name),
        "aliases": [{"alias": alias, "version": str(version)} for alias, version in aliases],
    }


def _shown_version(store: TrackingStore, row: sqlite3.Row) -> dict[str, Any]:
    values = (row["name"], row["version"])
    aliases = store.connection.execute("SELECT alias FROM aliases WHERE name = ? AND version = ?", values)
    return {
        "name": row["name"],
        "version": str(row["version"]),
        "creation_timestamp": row["created"],
        "last_updated_timestamp": row["updated"],
        "current_stage": row["stage"],
        "description": row["description"],
        "source": row["source"],
        "run_id": row["run_id"],
        "run_link": row["run_link"],
        "status": "READY",
        "tags": store.pairs("tags", _VERSION, _owner(row)),
        "aliases": [alias for (alias,) in aliases],
    }
