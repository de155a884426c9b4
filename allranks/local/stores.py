"""MLflow's databases in a runs folder: their tables are there before the first rank starts.

Processes that open a new database at once all make its tables: one dies ("table … already exists"), another loses what
it logs. So an empty database is made once for each version of MLflow, by the interpreter that will use it, in a process
of its own, since importing MLflow takes seconds; the user's cache keeps it, and every runs folder gets a copy.

A version of MLflow opens only a database with its own tables ("Can't locate revision"). The first is ``mlflow.db``, and
steps whose MLflow has others log to ``mlflow-<revision>.db`` beside it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from allranks.local import processes
from allranks.local.file_locks import held_lock, try_lock
from allranks.local.fingerprint import site_packages
from allranks.local.folders import RunsHome

# Run by a step's interpreter: the path of the database, and where files go unless an experiment says otherwise.
_MAKE = """
import sys
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
SqlAlchemyStore("sqlite:///" + sys.argv[1], sys.argv[2])
"""

# MLflow would put the files of an experiment into the working folder of whoever logs first, which belongs to one run.
_TRIGGER = """
CREATE TRIGGER allranks_{event} AFTER {when} ON experiments WHEN NEW.artifact_location LIKE '%/nodes/%/work/%' BEGIN
    UPDATE experiments SET artifact_location = '{place}/' || NEW.experiment_id WHERE experiment_id = NEW.experiment_id;
END
"""
_REDIRECT = """
UPDATE experiments SET artifact_location = '{place}/' || experiment_id
WHERE experiment_id = 0 OR artifact_location LIKE '%/nodes/%/work/%'
    OR artifact_location LIKE '%/mlflow/' || experiment_id
"""
_EVENTS = {"insert": "INSERT", "update": "UPDATE OF artifact_location"}


class MlflowStores:
    """Says which database the steps of an interpreter log to, and makes it when the first of them is about to start."""

    def __init__(self, home: RunsHome) -> None:
        self._home = home
        self._stores: dict[Path, Path] = {}
        self._makers: dict[Path, tuple[subprocess.Popen[bytes], int]] = {}  # by template; with the lock on it

    def path(self, python: Path) -> Path:
        """The database for the steps of an interpreter that is ``ready``."""
        return self._stores.get(python, self._home.mlflow)

    def ready(self, python: Path) -> bool:
        """Whether the tables are there; False while they are being made, then ask again later.

        An interpreter without MLflow needs none. When they cannot be made, MLflow itself says why in the step's log.
        """
        if python in self._stores:
            return True
        version = mlflow_version(python)
        template = _template_folder(self._home) / f"mlflow-{version}.db"
        if version and not template.is_file() and self._make(python, template):
            return False
        self._stores[python] = _settle(self._home, template) if template.is_file() else self._home.mlflow
        return True

    def close(self) -> None:
        """End what is being made."""
        for child, lock in self._makers.values():
            child.kill()
            child.wait()
            os.close(lock)
        self._makers.clear()

    def _make(self, python: Path, template: Path) -> bool:
        """Make a template, or go on waiting for it; False when that has failed."""
        if template not in self._makers:
            template.parent.mkdir(parents=True, exist_ok=True)
            lock = try_lock(_lock_file(template))
            if lock is not None:
                self._makers[template] = _start(python, template), lock
            return True  # otherwise another engine is making it
        child, lock = self._makers[template]
        if child.poll() is None:
            return True
        made = _aside(template)
        if made.is_file() and _revision(made):
            made.rename(template)
        os.close(lock)
        del self._makers[template]
        return False


def mlflow_version(python: Path) -> str:
    """The version of MLflow beside an interpreter, as its folder of metadata has it; empty without one."""
    for folder in site_packages(python):
        for record in (*folder.glob("mlflow-*.dist-info"), *folder.glob("mlflow_skinny-*.dist-info")):
            return record.name.removesuffix(".dist-info").partition("-")[2]
    return ""


def mlflow_databases(home: RunsHome) -> list[Path]:
    """Every database that steps have logged to."""
    return sorted(home.path.glob("mlflow*.db"))


def _template_folder(home: RunsHome) -> Path:
    """The user's cache, or a place in the runs folder where there is none to write to."""
    with suppress(RuntimeError, OSError):  # no home folder, or one that cannot be written to
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allranks"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return home.mlflow_files.absolute()


def _aside(template: Path) -> Path:
    return template.with_name(f".{template.name}.new")


def _start(python: Path, template: Path) -> subprocess.Popen[bytes]:
    """Start to make a template aside; what is printed is kept next to it."""
    made = _aside(template)
    for path in (made, made.with_name(f"{made.name}-journal")):  # of somebody who was killed
        path.unlink(missing_ok=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PYTHON"))}
    with template.with_suffix(".txt").open("wb") as log:
        return subprocess.Popen(
            [python, "-c", _MAKE, made, template.parent / "mlruns"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=template.parent,
            env=environ | {"MLFLOW_DISABLE_TELEMETRY": "true"},
            start_new_session=True,
            preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 safe here: the engine has one thread
        )


def _settle(home: RunsHome, template: Path) -> Path:
    """The database of this home with the tables of a template, copied if there is none."""
    revision = _revision(template)
    with held_lock(_lock_file(home.mlflow)):  # ``shared/tracking.py`` takes it as well; for milliseconds
        for path in (home.mlflow, home.mlflow.with_stem(f"mlflow-{revision}")):
            if not path.is_file() or path.stat().st_size == 0:
                new = _aside(path)
                shutil.copyfile(template, new)
                _redirect_files(home, new)
                new.rename(path)
                break
            if _revision(path) == revision:
                _redirect_files(home, path)
                break
    return path


def _revision(database: Path) -> str:
    """Which tables a database has, in MLflow's own terms; empty when it has none, or is no database."""
    return str(next(iter(query_database(database, "SELECT version_num FROM alembic_version", seconds=60) or ()), ""))


def query_database(database: Path, query: str, values: Sequence[str] = (), *, seconds: float) -> list[Any] | None:
    """The one column of a query; None when the database cannot be read within so many seconds."""
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=seconds)
        try:
            return [value for (value,) in connection.execute(query, values)]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return [] if "no such table" in str(error) else None  # somebody is about to make them, or it is not MLflow's


def _redirect_files(home: RunsHome, database: Path) -> None:
    """Let the files of every experiment lie in a place of their own, also when the runs folder has been moved."""
    place = home.mlflow_files.absolute().as_uri().replace("'", "''")
    wanted = {f"allranks_{name}": _TRIGGER.format(event=name, when=when, place=place) for name, when in _EVENTS.items()}
    connection = sqlite3.connect(database, timeout=60)
    try:
        known = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        if all(known.get(name) == text.strip() for name, text in wanted.items()):
            return
        for name, text in wanted.items():
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
            connection.execute(text)
        connection.execute(_REDIRECT.format(place=place))
        connection.commit()
    finally:
        connection.close()


def _lock_file(database: Path) -> Path:
    return database.with_name(f"{database.name}.lock")
