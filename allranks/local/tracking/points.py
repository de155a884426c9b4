"""What is logged to a run: metrics, params, tags, data sets and models that clients before MLflow 3 logged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allranks.local.tracking.runs import active_run, find_run
from allranks.local.tracking.store import (
    INVALID,
    MISSING,
    TrackingError,
    TrackingStore,
    list_of,
    now_ms,
    number_of,
    objects_of,
    shown_number,
    text_of,
    whole_of,
)

LONGEST_PARAM = 6000  # characters, as MLflow's own server has it; Azure ML takes 500
LONGEST_TAG = 8000
LONGEST_NAME = 250
_MOST_POINTS = 25000  # of one answer, as MLflow's server has it


def log_metric(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Log one value of a metric."""
    add_points(store, active_run(store, request)["number"], [request])
    return {}


def log_parameter(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Log a param, once."""
    _add_params(store, active_run(store, request)["run_id"], [request])
    return {}


def log_batch(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Log metrics, params and tags; all of them or none."""
    row = active_run(store, request)
    _add_params(store, row["run_id"], objects_of(request, "params"))
    add_points(store, row["number"], objects_of(request, "metrics"))
    _add_tags(store, row, objects_of(request, "tags"))
    return {}


def set_run_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Set a tag of a run."""
    _add_tags(store, active_run(store, request), [request])
    return {}


def set_run_properties(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Keep properties of a job as tags of its run: mldesigner writes control outputs so, beside MLflow's own paths."""
    properties = request.get("properties")
    found = properties.items() if isinstance(properties, Mapping) else ()
    tags = [{"key": name, "value": value if isinstance(value, str) else json.dumps(value)} for name, value in found]
    _add_tags(store, active_run(store, request), tags)
    return {}


def delete_run_tag(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a tag of a run."""
    row, key = active_run(store, request), text_of(request, "key")
    if not store.delete_tag("run", row["run_id"], key):
        raise TrackingError(MISSING, f"No tag with name: {key} in run with id {row['run_id']}")
    return {}


def log_inputs(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Note the data sets that a run has read."""
    number = active_run(store, request)["number"]
    for item in objects_of(request, "datasets"):
        dataset = item.get("dataset")
        if not isinstance(dataset, Mapping):
            raise TrackingError(INVALID, "Missing value for required parameter 'dataset'.")
        values = (number, f"{text_of(dataset, 'name')} {text_of(dataset, 'digest')}", json.dumps(item))
        store.connection.execute("INSERT OR REPLACE INTO datasets VALUES (?, ?, ?)", values)
    return {}


def log_model(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Note a model that clients before MLflow 3 logged: a tag of the run lists all of them."""
    row = active_run(store, request)
    try:
        model = json.loads(text_of(request, "model_json"))
    except ValueError:
        raise TrackingError(INVALID, "Malformed model info: it is not JSON.") from None
    found = store.row(
        "SELECT value FROM tags WHERE kind = 'run' AND owner = ? AND key = 'mlflow.log-model.history'", row["run_id"]
    )
    history = [*(json.loads(found["value"]) if found else []), model]
    store.set_tags("run", row["run_id"], [{"key": "mlflow.log-model.history", "value": json.dumps(history)}])
    return {}


def get_history(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give every value of one metric of a run, a page at a time."""
    row, key = find_run(store, request), text_of(request, "metric_key")
    limit = min(whole_of(request, "max_results", 0) or _MOST_POINTS, _MOST_POINTS)
    offset = whole_of(request, "page_token", 0)
    rows = store.connection.execute(
        "SELECT * FROM metrics WHERE run = ? AND key = ? ORDER BY time, step, seq LIMIT ? OFFSET ?",
        (row["number"], key, limit + 1, max(0, offset)),
    ).fetchall()
    token = {"next_page_token": str(offset + limit)} if len(rows) > limit else {}
    return {"metrics": [_shown_point(point, row["run_id"]) for point in rows[:limit]], **token}


def get_history_in_bulk(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """Give about ``max_results`` values of a metric for each of several runs, evenly spread over the steps."""
    key = text_of(request, "metric_key")
    first, last = whole_of(request, "start_step", -(2**63)), whole_of(request, "end_step", 2**63 - 1)
    most = max(1, min(whole_of(request, "max_results", 2500), 2500))
    metrics: list[dict[str, Any]] = []
    for run_id in list_of(request, "run_ids")[:100]:
        row = find_run(store, {"run_id": run_id})
        points = store.connection.execute(
            "SELECT * FROM metrics WHERE run = ? AND key = ? AND step BETWEEN ? AND ? ORDER BY step, time, seq",
            (row["number"], key, first, last),
        ).fetchall()
        metrics += [_shown_point(point, row["run_id"]) for point in _spread(points, most)]
    return {"metrics": metrics}


def _spread(points: Sequence[sqlite3.Row], most: int) -> Iterable[sqlite3.Row]:
    """So many of the points, the first and the last among them."""
    if len(points) <= most or most < 2:
        return points[:most]
    return [points[place * (len(points) - 1) // (most - 1)] for place in range(most)]


def _shown_point(point: sqlite3.Row, run_id: str) -> dict[str, Any]:
    """One value as MLflow's messages have it."""
    return {
        "key": point["key"],
        "value": shown_number(point["value"]),
        "timestamp": point["time"],
        "step": point["step"],
        "run_id": run_id,
    }


def add_points(store: TrackingStore, run: int, metrics: Iterable[Mapping[str, Any]]) -> None:
    """Log values to a run. Equal values of the same moment are all kept: several ranks may log to one run."""
    for metric in metrics:
        key = _name(text_of(metric, "key"), "metric")
        step, time = whole_of(metric, "step", 0), whole_of(metric, "timestamp", 0) or now_ms()
        value = number_of(metric.get("value"))
        added = store.connection.execute(
            "INSERT INTO metrics (run, key, step, time, value) VALUES (?, ?, ?, ?, ?)", (run, key, step, time, value)
        )
        store.connection.execute(
            "INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, key) DO UPDATE SET seq = excluded.seq,"
            " step = excluded.step, time = excluded.time, value = excluded.value"
            " WHERE (excluded.step, excluded.time) >= (latest.step, latest.time)",
            (run, key, added.lastrowid, step, time, value),
        )


def _add_params(store: TrackingStore, run_id: str, params: Iterable[Mapping[str, Any]]) -> None:
    known = {pair["key"]: pair["value"] for pair in store.pairs("params", "run", run_id)}
    for param in params:
        key, value = _name(text_of(param, "key"), "param"), str(param.get("value", ""))
        if len(value) > LONGEST_PARAM:
            raise TrackingError(
                INVALID,
                f"Param value for '{key}' had length {len(value)}, which exceeded length limit of {LONGEST_PARAM}",
            )
        if known.setdefault(key, value) != value:
            raise TrackingError(
                INVALID,
                f"Changing param values is not allowed. Param with key='{key}' was already logged with"
                f" value='{known[key]}' for run ID='{run_id}'. Attempted logging new value '{value}'.",
            )
        values = ("run", run_id, key, value)
        store.connection.execute("INSERT OR IGNORE INTO params VALUES (?, ?, ?, ?)", values)


def _add_tags(store: TrackingStore, row: sqlite3.Row, tags: Sequence[Mapping[str, Any]]) -> None:
    shortened = [
        {"key": _name(text_of(tag, "key"), "tag"), "value": str(tag.get("value", ""))[:LONGEST_TAG]} for tag in tags
    ]
    store.set_tags("run", row["run_id"], shortened)
    for tag in shortened:
        if tag["key"] == "mlflow.runName":
            store.connection.execute("UPDATE runs SET name = ? WHERE number = ?", (tag["value"], row["number"]))


def _name(key: str, what: str) -> str:
    if len(key) > LONGEST_NAME:
        raise TrackingError(INVALID, f"The name of a {what} has {len(key)} characters, the most are {LONGEST_NAME}.")
    return key
