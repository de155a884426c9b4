"""What views read of tracked runs, while they are written and afterwards.

Which run is a step's stands in ``step.json`` as ``mlflow_run_id``; a reused step names the run that logged its metrics.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from allranks.local.folders import RunsHome, child
from allranks.local.metrics_file import metrics_document
from allranks.local.tracking import JOB_TAG
from allranks.local.tracking.database import UNREADABLE, open_reader


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of a metric: the ``step`` that the script gave (0 if none), the time in seconds since 1970, the value.

    The value may be NaN or infinite.
    """

    step: int
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What was logged to one MLflow run.

    Attributes:
        status: ``RUNNING``, ``FINISHED``, ``FAILED`` or ``KILLED``.
        started, ended: seconds since 1970; ``ended`` is None while it runs.
        metrics: every value of each metric, in the order of logging; metrics are in the order of their names.
        tags: those of MLflow itself (``mlflow.…``) included.
        artifacts: the folder of its files, which may not exist; None when they lie elsewhere than on this machine.
    """

    run_id: str
    name: str
    experiment: str
    status: str
    started: float
    ended: float | None
    metrics: Mapping[str, Sequence[MetricPoint]]
    params: Mapping[str, str]
    tags: Mapping[str, str]
    artifacts: Path | None


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A run that a step's script has made itself, beside the step's own: nested in that, or a second one.

    Attributes:
        parent: the run that it is nested in; None for one that stands alone, which Azure ML shows as a job of its own.
        status: ``running``, ``succeeded``, ``failed`` or ``cancelled``, as of a step.
        seconds: how long it took; None while it runs.
        metrics: the last value of each, NaN and infinities included.
    """

    run_id: str
    name: str
    parent: str | None
    status: str
    seconds: float | None
    metrics: Mapping[str, float]
    params: Mapping[str, str]


def child_runs_document(children: Iterable[ChildRun]) -> list[dict[str, Any]]:
    """The runs that a step's script has made itself, as JSON."""
    return [{**asdict(child), "metrics": metrics_document(child.metrics)} for child in children]


def child_depths(children: Iterable[ChildRun]) -> list[int]:
    """How deep each is nested within the others: 0 for those that are not."""
    depths: dict[str | None, int] = {}
    for one in children:  # parents come first, as they were made
        depths[one.run_id] = depths.get(one.parent, -1) + 1
    return list(depths.values())


@dataclass(frozen=True, slots=True)
class NewMetrics:
    """What came in since the last look.

    Attributes:
        sequence: to be given at the next look.
        points: the new values by run and metric, in the order of logging.
    """

    sequence: int = 0
    points: Mapping[str, Mapping[str, Sequence[MetricPoint]]] = field(default_factory=dict)


def read_tracked_run(home: RunsHome, run_id: str) -> TrackedRun | None:
    """Read one run whole; None when there is no such run."""
    with TrackingReader(home) as reader:
        return reader.run(run_id)


class TrackingReader:
    """Reads tracked runs over one connection, which a view that looks again and again keeps; a context manager.

    A database that is not there, or not yet, has no runs. One thread may use it.
    """

    def __init__(self, home: RunsHome) -> None:
        self._home = home
        self._connection: sqlite3.Connection | None = None

    def run(self, run_id: str) -> TrackedRun | None:
        """One run whole; None when there is no such run."""
        rows = self._rows(
            "SELECT runs.*, experiments.name AS experiment, location FROM runs"
            f" JOIN experiments USING (experiment_id) WHERE run_id = ? AND {_RUN_FITS}",
            run_id,
        )
        return _tracked(self, self._home, rows[0]) if rows else None

    def metrics(self, run_id: str) -> dict[str, list[MetricPoint]]:
        """Every value of each metric of a run; empty when there is no such run."""
        query = f"SELECT key, {_POINT} FROM metrics WHERE run = ({_NUMBER}) AND {_POINT_FITS} ORDER BY key, seq"
        found: dict[str, list[MetricPoint]] = {}
        for key, *point in self._rows(query, run_id):
            found.setdefault(key, []).append(_point(*point))
        return found

    def values(self, run_id: str, metric: str) -> list[float]:
        """The values of one metric of a run by time, NaN included."""
        query = (
            f"SELECT value FROM metrics WHERE run = ({_NUMBER}) AND key = ? AND {_POINT_FITS} ORDER BY time, step, seq"
        )
        return [_value(value) for (value,) in self._rows(query, run_id, metric)]

    def latest(self, run_id: str) -> dict[str, float]:
        """The last value of each metric of a run: that of the highest step, as MLflow has it."""
        query = f"SELECT key, value FROM latest WHERE run = ({_NUMBER}) AND {_POINT_FITS} ORDER BY key"
        return {key: _value(value) for key, value in self._rows(query, run_id)}

    def sequence(self) -> int:
        """The sequence number of what was logged last, by any run."""
        rows = self._rows("SELECT max(seq) FROM metrics")
        return int(rows[0][0] or 0) if rows else 0

    def new_metrics(self, run_ids: Iterable[str], since: int = 0) -> NewMetrics:
        """What was logged to these runs after the sequence number ``since``; 0 is before everything.

        It costs what is new in the whole runs folder: whoever watches a run from its start begins at ``sequence()``.
        """
        wanted = set(run_ids)
        found: dict[str, dict[str, list[MetricPoint]]] = {}
        query = (
            f"SELECT seq, run_id, key, {_POINT} FROM metrics JOIN runs ON number = run"
            f" WHERE seq > ? AND {_POINT_FITS} ORDER BY seq"
        )
        for seq, run_id, key, *point in self._rows(query, since):
            since = seq
            if run_id in wanted:
                found.setdefault(run_id, {}).setdefault(key, []).append(_point(*point))
        return NewMetrics(since, found)

    def run_ids(self) -> list[str]:
        """The ids of all runs that were not deleted, oldest first, so that parents come before their children."""
        query = "SELECT run_id FROM runs WHERE stage = 'active' AND typeof(run_id) = 'text' ORDER BY number"
        return [run_id for (run_id,) in self._rows(query)]

    def children(self, run_id: str) -> list[str]:
        """The ids of the runs that name this one as their parent (tag ``mlflow.parentRunId``), oldest first."""
        query = (
            "SELECT run_id FROM tags JOIN runs ON run_id = owner"
            " WHERE kind = 'run' AND key = 'mlflow.parentRunId' AND value = ? ORDER BY number"
        )
        return [found for (found,) in self._rows(query, run_id)]

    def made_by(self, job: str) -> list[ChildRun]:
        """The runs that the script of a step or trial has made itself, oldest first, at most so many."""
        found = self._rows(_MADE_BY, JOB_TAG, job, job, _MOST_CHILDREN)
        return [
            ChildRun(
                run_id,
                name,
                parent,
                _STATUS_WORDS.get(status, status.lower()),
                None if ended is None else max(0, ended - started) / 1000,
                self.latest(run_id),
                self.pairs("params", run_id),
            )
            for run_id, name, parent, status, started, ended in found
        ]

    def pairs(self, table: str, run_id: str) -> dict[str, str]:
        """The ``params`` or ``tags`` of a run."""
        query = f"SELECT key, value FROM {table} WHERE kind = 'run' AND owner = ? AND {_PAIR_FITS}"
        return dict(self._rows(query, run_id))

    def close(self) -> None:
        """Close the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the database."""
        self.close()

    def _rows(self, query: str, *values: object) -> list[Any]:
        if self._connection is None:
            self._connection = open_reader(self._home.tracking)
        if self._connection is None:
            return []
        try:
            return self._connection.execute(query, values).fetchall()
        except UNREADABLE:  # it was removed, or the disk fails: the next look opens it anew
            self.close()
            return []


def _fits(kinds: Mapping[str, str]) -> str:
    """A condition on the kinds of values: SQLite keeps any in any column, and a folder of runs may be a stranger's."""
    return " AND ".join(f"typeof({column}) IN ({kind})" for column, kind in kinds.items())


_TEXT, _WHOLE, _WHOLE_OR_NONE, _NUMBER_OR_NONE = "'text'", "'integer'", "'integer', 'null'", "'real', 'null'"
_POINT_FITS = _fits({"key": _TEXT, "step": _WHOLE, "time": _WHOLE, "value": _NUMBER_OR_NONE})
_PAIR_FITS = _fits({"key": _TEXT, "value": _TEXT})
_MADE_FITS = _fits({"run_id": _TEXT, "runs.name": _TEXT, "status": _TEXT, "started": _WHOLE, "ended": _WHOLE_OR_NONE})
_PLACE_FITS = _fits({"experiments.name": _TEXT, "experiment_id": _TEXT, "location": f"{_TEXT}, 'null'"})
_RUN_FITS = f"{_MADE_FITS} AND {_PLACE_FITS}"
_NUMBER = "SELECT number FROM runs WHERE run_id = ?"
_POINT = "step, time, value"
_STATUS_WORDS = {"FINISHED": "succeeded", "KILLED": "cancelled", "SCHEDULED": "waiting"}
_MOST_CHILDREN = 1000  # of one step
_MADE_BY = f"""
SELECT run_id, name, parents.value, status, started, ended FROM runs
    LEFT JOIN tags AS parents ON parents.kind = 'run' AND owner = run_id AND key = 'mlflow.parentRunId'
        AND typeof(parents.value) = 'text'
    WHERE NOT managed AND stage = 'active' AND {_MADE_FITS} AND run_id IN (
        SELECT owner FROM tags WHERE kind = 'run' AND key = ? AND value = ?
        UNION SELECT owner FROM tags WHERE kind = 'run' AND key = 'mlflow.parentRunId' AND value = ?)
    ORDER BY number LIMIT ?
"""


def _value(value: float | None) -> float:
    return math.nan if value is None else value


def _point(step: int, milliseconds: int, value: float | None) -> MetricPoint:
    return MetricPoint(step, milliseconds / 1000, _value(value))


def _tracked(reader: TrackingReader, home: RunsHome, row: sqlite3.Row) -> TrackedRun:
    run_id = row["run_id"]
    return TrackedRun(
        run_id=run_id,
        name=row["name"],
        experiment=row["experiment"],
        status=row["status"],
        started=row["started"] / 1000,
        ended=None if row["ended"] is None else row["ended"] / 1000,
        metrics=reader.metrics(run_id),
        params=reader.pairs("params", run_id),
        tags=reader.pairs("tags", run_id),
        artifacts=artifacts_of(home, row["experiment_id"], row["location"], run_id),
    )


def artifacts_of(home: RunsHome, experiment_id: str, location: str | None, run_id: str) -> Path | None:
    """The folder of a run's files."""
    from allranks.local.tracking.store import files_below

    base = home.mlflow_files.absolute() if location is None else files_below(location)
    ids = [run_id] if location is not None else [experiment_id, run_id]
    return None if base is None else child(base, *ids, source=home.tracking) / "artifacts"
