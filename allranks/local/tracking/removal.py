"""Removes the MLflow runs of one run of a pipeline, and their files but for those of registered models."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from allranks.errors import StorageError
from allranks.local.folders import RunsHome
from allranks.local.tracking import JOB_TAG
from allranks.local.tracking.database import transaction
from allranks.local.tracking.store import TrackingStore, files_below

_OF_JOBS = """
SELECT number, run_id, experiment_id FROM runs WHERE run_id = :root OR (managed AND run_id IN
    (SELECT owner FROM tags WHERE kind = 'run' AND key = 'mlflow.rootRunId' AND value = :root))
"""
_OF_SCRIPTS = """
SELECT number, run_id, experiment_id FROM runs WHERE NOT managed AND run_id IN (SELECT owner FROM tags
    WHERE kind = 'run' AND key IN (?, 'mlflow.parentRunId') AND value = ?)
"""


def remove_tracked_runs(home: RunsHome, run_id: str) -> None:
    """Forget the MLflow runs of a run, its steps, their trials and their scripts, and delete the files logged to them.

    What versions of registered models are made of stays where it is. So do files that an experiment keeps outside of
    the runs folder.

    Raises:
        StorageError: the database cannot be written, or a file not removed; or an id in the database is not the name
            of a folder of ours, and then nothing has been removed.
    """
    if not home.tracking.is_file():
        return
    try:
        store = TrackingStore(home)
    except sqlite3.Error as error:
        raise StorageError(f"cannot write to {home.tracking}: {error}.") from error
    try:
        kept = _registered_files(store)
        with transaction(store.connection):
            places = [_forget(store, row) for row in _runs_of(store, run_id)]
        for place in places:
            _delete_files(place, kept)
    except sqlite3.Error as error:
        raise StorageError(f"cannot write to {home.tracking}: {error}.") from error
    except OSError as error:
        raise StorageError(
            f"cannot remove {error.filename or home.mlflow_files}: {error.strerror or error}."
        ) from error
    finally:
        store.close()


def _runs_of(store: TrackingStore, root: str) -> list[sqlite3.Row]:
    """The rows of all runs, those that a run was made in before it."""
    found = store.connection.execute(_OF_JOBS, {"root": root}).fetchall()
    known = {row["run_id"] for row in found}
    for row in found:  # grows: scripts nest runs in those that they have made
        for child in store.connection.execute(_OF_SCRIPTS, (JOB_TAG, row["run_id"])).fetchall():
            if child["run_id"] not in known:
                known.add(child["run_id"])
                found.append(child)
    return found


def _registered_files(store: TrackingStore) -> list[Path]:
    """Where the files of all versions of registered models lie."""
    found = []
    for (source,) in store.connection.execute("SELECT source FROM model_versions"):
        parts = urlsplit(source)
        if parts.scheme == "runs":  # runs:/ID/path
            run_id, _, path = parts.path.strip("/").partition("/")
            run = store.row("SELECT experiment_id FROM runs WHERE run_id = ?", run_id)
            found += [] if run is None else [store.folder(run["experiment_id"], run_id) / "artifacts" / path]
        elif (place := files_below(source)) is not None:
            found.append(place)
    return found


def _forget(store: TrackingStore, row: sqlite3.Row) -> Path:
    """Delete the rows of a run; return the folder of its files."""
    number, run_id, experiment = row["number"], row["run_id"], row["experiment_id"]
    for table in ("metrics", "latest", "datasets"):
        store.connection.execute(f"DELETE FROM {table} WHERE run = ?", (number,))
    for table in ("tags", "params"):
        store.connection.execute(f"DELETE FROM {table} WHERE kind = 'run' AND owner = ?", (run_id,))
    store.connection.execute("DELETE FROM runs WHERE number = ?", (number,))
    return store.folder(experiment, run_id)


def _delete_files(place: Path, kept: Iterable[Path]) -> None:
    """Delete a folder, but for what is kept and the folders around that."""
    if place.is_symlink() or not place.is_dir():
        place.unlink(missing_ok=True)
    elif not any(one.is_relative_to(place) for one in kept):
        shutil.rmtree(place)
    elif place not in kept:
        for item in place.iterdir():
            if item not in kept:
                _delete_files(item, kept)
