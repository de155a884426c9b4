"""Tracked runs as a database of MLflow's own, for ``mlflow ui``, which cannot read ours.

An interpreter that has MLflow writes it through MLflow's client, so the tables are those of its version.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.errors import CannotRunHereError
from allranks.local.folders import RunsHome
from allranks.local.tracking.reading import TrackedRun, TrackingReader

# Reads a run from each line of its input. MLflow chooses the ids, so parents are renamed; files are linked to.
_WRITE = """
import json, os, sys
from urllib.parse import quote, unquote, urlsplit
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient
client, experiments, ids = MlflowClient(tracking_uri="sqlite:///" + sys.argv[1]), {}, {}
for line in sys.stdin:
    run = json.loads(line)
    name = run["experiment"]
    if name not in experiments:
        found, place = client.get_experiment_by_name(name), sys.argv[2] + "/" + quote(name, "")
        experiments[name] = found.experiment_id if found else client.create_experiment(name, place)
    tags = {**run["tags"], "allranks.run_id": run["run_id"]}
    for key in ("mlflow.parentRunId", "mlflow.rootRunId"):
        if tags.get(key) in ids:
            tags[key] = ids[tags[key]]
    made = client.create_run(experiments[name], start_time=run["started"], tags=tags, run_name=run["name"]).info
    ids[run["run_id"]] = made.run_id
    for start in range(0, len(run["params"]), 100):
        client.log_batch(made.run_id, params=[Param(*pair) for pair in run["params"][start : start + 100]])
    for start in range(0, len(run["metrics"]), 1000):
        points = run["metrics"][start : start + 1000]
        client.log_batch(made.run_id, [Metric(key, float(value), time, step) for key, value, time, step in points])
    if run["ended"]:
        client.set_terminated(made.run_id, run["status"], run["ended"])
    place = unquote(urlsplit(made.artifact_uri).path)
    if run["artifacts"]:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.lexists(place):
            os.symlink(run["artifacts"], place)
"""


def export_to_mlflow(home: RunsHome, python: Path, database: Path) -> int:
    """Write all tracked runs into a new SQLite database of MLflow's.

    Args:
        home: the runs folder.
        python: an interpreter that has MLflow, and SQLAlchemy with it.
        database: is made, and replaced if it is there; links to files are put beside it, in a folder of its name.

    Returns:
        How many runs there are.

    Raises:
        CannotRunHereError: the interpreter has no MLflow that could write it.
    """
    aside = database.with_name(f".{database.name}.new")
    aside.unlink(missing_ok=True)
    with TrackingReader(home) as reader:
        runs = [run for run_id in reader.run_ids() if (run := reader.run(run_id)) is not None]
    lines = "".join(f"{json.dumps(document)}\n" for document in map(_document, runs))
    files = database.absolute().with_suffix(".files").as_uri()
    command = [str(python), "-c", _WRITE, str(aside.absolute()), files]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        hint = "It needs the packages mlflow (not mlflow-skinny alone) and sqlalchemy: pip install mlflow"
        raise CannotRunHereError(f"{python} cannot write MLflow's database: {why}.", hint)
    aside.replace(database)
    return len(runs)


def _document(run: TrackedRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "name": run.name,
        "experiment": run.experiment,
        "status": run.status,
        "started": int(run.started * 1000),
        "ended": None if run.ended is None else int(run.ended * 1000),
        "tags": dict(run.tags),
        "params": list(run.params.items()),
        "metrics": list(_points(run)),
        "artifacts": str(run.artifacts) if run.artifacts is not None and run.artifacts.is_dir() else None,
    }


def _points(run: TrackedRun) -> Iterator[tuple[str, float | str, int, int]]:
    for key, points in run.metrics.items():
        for point in points:
            value = point.value if math.isfinite(point.value) else str(point.value)
            yield key, value, int(point.time * 1000), point.step
