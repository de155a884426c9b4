"""What a trial has logged of the primary metric: one value for each interval.

It is looked for in ``outputs/metrics.jsonl`` and, since a script that was written for Azure ML calls
``mlflow.log_metric``, in MLflow's database. That is read as the SQLite file it is: MLflow takes seconds to import.
"""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path

from allranks.local.folders import Home, StepFolder

TRIAL_TAG = "allranks.trial"
_LOGGED = """
    SELECT metrics.value FROM metrics JOIN tags ON tags.run_uuid = metrics.run_uuid
    WHERE tags.key = ? AND tags.value = ? AND metrics.key = ? AND NOT metrics.is_nan
    ORDER BY metrics.timestamp, metrics.step
"""


def mlflow_context(folder: StepFolder) -> str:
    """The value of MLFLOW_RUN_CONTEXT: tags that MLflow gives to every run which a process of the trial starts."""
    return json.dumps({TRIAL_TAG: _tag(folder)})


def _tag(folder: StepFolder) -> str:
    """Run, sweep and number: unique in a home, and the same when the home is moved."""
    run, _, sweep, _, number = folder.path.parts[-5:]
    return f"{run}.{sweep}.{number}"


class History:
    """The values of one metric of one trial; what has not changed is not read again.

    Args:
        folder: the trial's, in the run that executed it.
        home: holds MLflow's database.
        metric: its name.

    Attributes:
        current: whether the last look found out what there is; False while the database is locked.
    """

    def __init__(self, folder: StepFolder, home: Home, metric: str) -> None:
        self.folder = folder
        self._file, self._database = folder.metrics(), home.mlflow
        self._log = home.mlflow.with_name(f"{home.mlflow.name}-wal")  # SQLite may keep the newest rows beside it
        self._metric = metric
        self._stamp: tuple[int, ...] = ()
        self._values: list[float] = []
        self.current = False

    def values(self) -> list[float]:
        """All values so far, in the order of logging."""
        stamp = tuple(part for path in (self._file, self._database, self._log) for part in _stamp(path))
        if stamp != self._stamp:
            found = _from_file(self._file, self._metric) or _from_database(self._database, self.folder, self._metric)
            self.current = found is not None
            if found is not None:
                self._stamp, self._values = stamp, found
        return self._values


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def _from_file(file: Path, metric: str) -> list[float]:
    """From lines of ``{"step", "total", "metrics": {name: number}}``; one that is half written is left for later."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return []
    values = []
    for line in lines:
        try:
            value = json.loads(line)["metrics"][metric]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(value, (int, float)) and math.isfinite(value):
            values.append(float(value))
    return values


def _from_database(database: Path, folder: StepFolder, metric: str) -> list[float] | None:
    """None when the database cannot be read now: it is being made, or somebody writes to it."""
    if not database.is_file():
        return []
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=0)
        try:
            return [float(value) for (value,) in connection.execute(_LOGGED, (TRIAL_TAG, _tag(folder), metric))]
        finally:
            connection.close()
    except sqlite3.Error:
        return None
