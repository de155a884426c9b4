"""MLflow's REST API: which request is answered by which function.

Paths and methods are those of MLflow's ``service.proto`` and ``model_registry.proto``; the lists of MLflow 1 are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from allranks.local.tracking import artifacts, experiments, points, registry, runs
from allranks.local.tracking.store import ABSENT, TrackingError, TrackingStore

Handler: TypeAlias = Callable[[TrackingStore, Mapping[str, Any]], dict[str, Any]]

_PREFIX = re.compile(r"/(?:api|ajax-api)/[23]\.0/(?:preview/)?mlflow/(.*?)/?")
_HISTORY = re.compile(r"/(experimentids/[^/]+/runs/[^/]+)")  # Azure's run history, which mldesigner writes to
_READS: Mapping[str, Handler] = {
    "GET experiments/get": experiments.get_experiment,
    "GET experiments/get-by-name": experiments.get_experiment_by_name,
    "GET experiments/search": experiments.search_experiments,
    "POST experiments/search": experiments.search_experiments,
    "GET experiments/list": experiments.search_experiments,
    "GET runs/get": runs.get_run,
    "POST runs/search": runs.search_runs,
    "GET metrics/get-history": points.get_history,
    "GET metrics/get-history-bulk-interval": points.get_history_in_bulk,
    "GET artifacts/list": artifacts.list_artifacts,
    "GET registered-models/get": registry.get_registered_model,
    "GET registered-models/search": registry.search_registered_models,
    "GET registered-models/list": registry.search_registered_models,
    "GET registered-models/get-latest-versions": registry.get_latest_versions,
    "POST registered-models/get-latest-versions": registry.get_latest_versions,
    "GET registered-models/alias": registry.get_version_by_alias,
    "GET model-versions/get": registry.get_version,
    "GET model-versions/search": registry.search_versions,
    "GET model-versions/get-download-uri": registry.get_download_uri,
}
_WRITES: Mapping[str, Handler] = {
    "POST experiments/create": experiments.create_experiment,
    "POST experiments/update": experiments.update_experiment,
    "POST experiments/delete": experiments.delete_experiment,
    "POST experiments/restore": experiments.restore_experiment,
    "POST experiments/set-experiment-tag": experiments.set_experiment_tag,
    "POST experiments/delete-experiment-tag": experiments.delete_experiment_tag,
    "POST runs/create": runs.create_run,
    "POST runs/update": runs.update_run,
    "POST runs/delete": runs.delete_run,
    "POST runs/restore": runs.restore_run,
    "POST runs/log-metric": points.log_metric,
    "POST runs/log-parameter": points.log_parameter,
    "POST runs/log-batch": points.log_batch,
    "POST runs/log-model": points.log_model,
    "POST runs/log-inputs": points.log_inputs,
    "POST runs/set-tag": points.set_run_tag,
    "POST runs/delete-tag": points.delete_run_tag,
    "PATCH experimentids/{experiment_id}/runs/{run_id}": points.set_run_properties,
    "POST registered-models/create": registry.create_registered_model,
    "PATCH registered-models/update": registry.update_registered_model,
    "DELETE registered-models/delete": registry.delete_registered_model,
    "POST registered-models/set-tag": registry.set_registered_model_tag,
    "DELETE registered-models/delete-tag": registry.delete_registered_model_tag,
    "POST registered-models/alias": registry.set_alias,
    "DELETE registered-models/alias": registry.delete_alias,
    "POST model-versions/create": registry.create_version,
    "PATCH model-versions/update": registry.update_version,
    "POST model-versions/transition-stage": registry.transition_stage,
    "DELETE model-versions/delete": registry.delete_version,
    "POST model-versions/set-tag": registry.set_version_tag,
    "DELETE model-versions/delete-tag": registry.delete_version_tag,
}
_PIN = (
    "Azure ML's tracking server has no logged models (MLflow 3), and neither has that of a local run. Pin mlflow<3 in"
    " the step's environment, or write the model with save_model to an output of the step."
)
_SUPPORTED = (
    "Like Azure ML's, the tracking server of a local run has experiments, runs, metrics, params, tags, data sets,"
    " artifacts and a model registry. It has no traces, prompts, webhooks or evaluation data sets."
)
_PATTERNS = tuple(
    (re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route)), route) for route in (*_READS, *_WRITES) if "{" in route
)


@dataclass(frozen=True, slots=True)
class FoundRoute:
    """What answers a request; ``fields`` are those that stand in its path."""

    handler: Handler
    writes: bool
    fields: Mapping[str, str]


def find_route(method: str, path: str) -> FoundRoute:
    """Find what answers a request.

    Raises:
        TrackingError: nothing does.
    """
    match = _PREFIX.fullmatch(path) or _HISTORY.fullmatch(path)
    asked = f"{method} {match[1]}" if match else ""
    route, fields = asked, {}
    if asked not in _READS and asked not in _WRITES:
        for pattern, name in _PATTERNS:
            if found := pattern.fullmatch(asked):
                route, fields = name, found.groupdict()
                break
        else:
            logged = match and (match[1].startswith("logged-models") or match[1] == "runs/outputs")
            raise TrackingError(ABSENT, f"{method} {path[:200]} is not supported. {_PIN if logged else _SUPPORTED}")
    handler = _READS.get(route) or _WRITES[route]
    return FoundRoute(handler, route in _WRITES, fields)
