"""The MLflow runs that the engine makes: one for the pipeline, and below it one for each step and trial.

As on Azure ML the id of the run is that of the job: AZUREML_RUN_ID and MLFLOW_RUN_ID are the same. What any process of
the job logs goes there. A retried attempt continues the run; its status is the engine's to set.
"""

from __future__ import annotations

import getpass
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from allranks.errors import StorageError
from allranks.local.cache import discard_copies
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.tracking import JOB_TAG
from allranks.local.tracking.database import transaction
from allranks.local.tracking.experiments import ensure_experiment
from allranks.local.tracking.store import TrackingStore, now_ms

STATUS_OF = {"succeeded": "FINISHED", "failed": "FAILED", "cancelled": "KILLED", "skipped": "KILLED"}
"""MLflow's status by the engine's."""


def job_run_id(run_id: str, step: str = "") -> str:
    """The id of the MLflow run of a step or trial (``outer.train``, ``tune.0``), or of the whole run of the pipeline.

    MLflow takes letters, digits, underscores and hyphens only; a hyphen of a step's name is written twice, so that
    ``a-b`` is not ``b`` of ``a``.
    """
    return f"{run_id}-{step.replace('-', '--').replace('.', '-')}" if step else run_id


class JobRuns:
    """Makes the MLflow runs of one run of a pipeline, about a millisecond each.

    The database is opened when the first is made.

    Args:
        home: the runs folder.
        run_id: of the pipeline's run.
        experiment: its name; made if there is none.
        name: shown for the pipeline's run.
    """

    def __init__(self, home: RunsHome, run_id: str, experiment: str, name: str) -> None:
        self._home = home
        self._run_id = run_id
        self._experiment = experiment
        self._name = name
        self._store: TrackingStore | None = None
        self.experiment_id = ""

    def begin(self) -> None:
        """Make the pipeline's own run, and the experiment if there is none; the run's folder is marked as alive.

        Raises:
            StorageError: the database cannot be written.
        """
        try:
            self._store = TrackingStore(self._home)
            with transaction(self._store.connection):
                killed = self._end_abandoned(self._store)
                self.experiment_id = ensure_experiment(self._store, self._experiment)
                self._make(job_run_id(self._run_id), self._name, {})
        except sqlite3.Error as error:
            raise self._fault(error) from error
        for run in killed:
            discard_copies(run)

    def begin_step(self, step: str, parent: str = "", tags: Mapping[str, str] | None = None) -> str:
        """Make the run of a step, or continue that of an earlier attempt.

        Args:
            step: its full name; that of a trial ends in its number.
            parent: the step that it is a part of, if it is no step of the pipeline itself.
            tags: more of them.

        Returns:
            The run's id.

        Raises:
            StorageError: the database cannot be written.
        """
        run_id = job_run_id(self._run_id, step)
        assert self._store is not None  # noqa: S101 the run has begun
        try:
            with transaction(self._store.connection):
                own = {"mlflow.parentRunId": job_run_id(self._run_id, parent), "mlflow.rootRunId": self._run_id}
                self._make(run_id, step, {**own, **(tags or {})})
        except sqlite3.Error as error:
            raise self._fault(error) from error
        return run_id

    def end(self, status: str, step: str = "") -> None:
        """Set how a step has ended, or without one how the whole run has; what was never begun has no run.

        On a disk that is full it stays as it is: ``begin`` of another run will mend it.
        """
        if self._store is None:
            return
        job = job_run_id(self._run_id, step)
        made = "SELECT owner FROM tags WHERE kind = 'run' AND key = ? AND value = ?"  # by the script, which may be dead
        condition = f"run_id = ? OR (status = 'RUNNING' AND run_id IN ({made}))"
        values = (STATUS_OF[status], now_ms(), job, JOB_TAG, job)
        with suppress(sqlite3.Error):
            self._store.connection.execute(f"UPDATE runs SET status = ?, ended = ? WHERE {condition}", values)

    def _end_abandoned(self, store: TrackingStore) -> list[RunFolder]:
        """End what engines that were killed have left running; return the folders of their runs.

        An id of the database becomes no path: it is looked for among the folders that there are.
        """
        rows = store.connection.execute(
            "SELECT number, coalesce(value, run_id) FROM runs LEFT JOIN tags"
            " ON kind = 'run' AND owner = run_id AND key = 'mlflow.rootRunId' WHERE managed AND status = 'RUNNING'"
        ).fetchall()
        folders = [RunFolder(path) for path in self._home.runs.glob("*") if path.name in {root for _, root in rows}]
        alive = {run.id for run in folders if run.alive}
        ended = [(number,) for number, root in rows if root not in alive]
        store.connection.executemany("UPDATE runs SET status = 'KILLED', ended = started WHERE number = ?", ended)
        return [run for run in folders if run.id not in alive]

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _make(self, run_id: str, name: str, tags: Mapping[str, str]) -> None:
        store: Any = self._store
        user = _user()
        store.connection.execute(
            "INSERT INTO runs (run_id, experiment_id, name, user, status, started, managed)"
            " VALUES (?, ?, ?, ?, 'RUNNING', ?, 1) ON CONFLICT (run_id) DO UPDATE SET status = 'RUNNING', ended = NULL",
            (run_id, self.experiment_id, name, user, now_ms()),
        )
        shown = {"mlflow.runName": name, "mlflow.user": user, "mlflow.source.type": "JOB", **tags}
        store.set_tags("run", run_id, [{"key": key, "value": value} for key, value in shown.items()])

    def _fault(self, error: sqlite3.Error) -> StorageError:
        hint = "Choose another runs folder with --runs-dir DIR, or move this file away: the metrics in it go with it."
        return StorageError(f"cannot write to {self._home.tracking}: {error}.", hint)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        return ""
