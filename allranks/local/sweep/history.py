"""What a trial has logged of the primary metric: one value for each interval.

It is looked for in ``outputs/metrics.jsonl`` and, since a script that was written for Azure ML calls
``mlflow.log_metric``, in MLflow's database. That is read as the SQLite file it is: MLflow takes seconds to import.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from allranks.local.folders import RunsHome, StepFolder
from allranks.local.metrics_file import read_metrics
from allranks.local.stores import mlflow_databases, query_database

_TRIAL_TAG = "allranks.trial"
LAST_LOOK_SECONDS = 10.0  # seconds that the last look at a trial waits for a database that others write to
_OF_TRIAL = """
    SELECT metrics.value FROM metrics JOIN tags ON tags.run_uuid = metrics.run_uuid
    WHERE tags.key = ? AND tags.value = ? AND metrics.key = ?
"""
# MLflow stores an infinity as the largest number that there is, and a NaN as 0 with a flag.
_FINITE = "NOT metrics.is_nan AND abs(metrics.value) < 1.7976931348623157e308"
_LOGGED = f"{_OF_TRIAL} AND {_FINITE} ORDER BY metrics.timestamp, metrics.step"
_NOT_A_NUMBER = f"{_OF_TRIAL} AND NOT ({_FINITE})"


def mlflow_context(folder: StepFolder) -> str:
    """The value of MLFLOW_RUN_CONTEXT: tags that MLflow gives to every run which a process of the trial starts."""
    return json.dumps({_TRIAL_TAG: _tag(folder)})


def _tag(folder: StepFolder) -> str:
    """Run, sweep and number: unique in a home, and the same when the home is moved."""
    run, _, sweep, _, number = folder.path.parts[-5:]
    return f"{run}.{sweep}.{number}"


class MetricHistory:
    """The values of one metric of one trial; what has not changed is not read again.

    The folder is the trial's, in the run that executed it. ``current`` says whether the last look found out what there
    is; it is False while the database is locked.
    """

    def __init__(self, folder: StepFolder, home: RunsHome, metric: str) -> None:
        self.folder = folder
        self._file = folder.metrics()
        self._home = home
        self._metric = metric
        self._stamp: tuple[int, ...] = ()
        self._values: list[float] = []
        self.current = False

    def values(self, patience: float = 0.0) -> list[float]:
        """All finite values so far, in the order of logging; waits ``patience`` seconds for a locked database."""
        databases = mlflow_databases(self._home)
        logs = [path.with_name(f"{path.name}-wal") for path in databases]  # SQLite may keep the newest rows beside it
        stamp = tuple(part for path in (self._file, *databases, *logs) for part in _stamp(path))
        if stamp != self._stamp:
            found = _from_file(self._file, self._metric) or self._from_databases(databases, patience)
            self.current = found is not None
            if found is not None:
                self._stamp, self._values = stamp, found
        return self._values

    def is_known_empty(self) -> bool:
        """Whether it is known that a trial without a value has none, rather than that it may have been lost.

        So it is when rank 0 has written other metrics to the file, or when MLflow has a value that is not a number.
        """
        return self._file.is_file() or any(
            self._query(database, _NOT_A_NUMBER, LAST_LOOK_SECONDS) for database in mlflow_databases(self._home)
        )

    def _from_databases(self, databases: Sequence[Path], patience: float) -> list[float] | None:
        """None when one of them cannot be read now: it is being made, or somebody writes to it."""
        values: list[float] = []
        for database in databases:
            found = self._query(database, _LOGGED, patience)
            if found is None:
                return None
            values += found
        return values

    def _query(self, database: Path, query: str, patience: float) -> list[float] | None:
        return query_database(database, query, (_TRIAL_TAG, _tag(self.folder), self._metric), seconds=patience)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _from_file(file: Path, metric: str) -> list[float]:
    found = (entry.metrics.get(metric) for entry in read_metrics(file))
    return [float(value) for value in found if value is not None and math.isfinite(value)]
