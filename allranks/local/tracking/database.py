"""The database of tracked runs: one SQLite file for a runs folder, which several engines may write to at once.

Write-ahead logging lets readers and one writer work side by side; writers wait for one another, and each transaction is
short. A metric's ``seq`` grows with the order of the commits, so whoever has read up to one misses nothing later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

BUSY_SECONDS = 60.0  # that a writer waits for the others
_VERSION = 2

_TABLES = """
CREATE TABLE experiments (experiment_id TEXT PRIMARY KEY, name TEXT UNIQUE NOT NULL, location TEXT,
    stage TEXT NOT NULL DEFAULT 'active', created INTEGER NOT NULL, updated INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT UNIQUE NOT NULL, experiment_id TEXT NOT NULL,
    name TEXT NOT NULL, user TEXT NOT NULL, status TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER,
    stage TEXT NOT NULL DEFAULT 'active', managed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX runs_of_experiment ON runs (experiment_id);
CREATE INDEX runs_under_way ON runs (status) WHERE status = 'RUNNING';
CREATE TABLE tags (kind TEXT, owner TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (kind, owner, key)) WITHOUT ROWID;
CREATE INDEX tag_values ON tags (kind, key, value);
CREATE TABLE params (kind TEXT, owner TEXT, key TEXT, value TEXT NOT NULL,
    PRIMARY KEY (kind, owner, key)) WITHOUT ROWID;
CREATE TABLE metrics (seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, key TEXT NOT NULL,
    step INTEGER NOT NULL, time INTEGER NOT NULL, value REAL);
CREATE INDEX metric_points ON metrics (run, key);
CREATE TABLE latest (run INTEGER, key TEXT, seq INTEGER NOT NULL, step INTEGER NOT NULL, time INTEGER NOT NULL,
    value REAL, PRIMARY KEY (run, key)) WITHOUT ROWID;
CREATE TABLE datasets (run INTEGER, name TEXT, document TEXT NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE TABLE registered_models (name TEXT PRIMARY KEY, description TEXT NOT NULL, created INTEGER NOT NULL,
    updated INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE model_versions (name TEXT, version INTEGER, source TEXT NOT NULL, run_id TEXT NOT NULL,
    run_link TEXT NOT NULL, description TEXT NOT NULL, stage TEXT NOT NULL DEFAULT 'None', created INTEGER NOT NULL,
    updated INTEGER NOT NULL, PRIMARY KEY (name, version)) WITHOUT ROWID;
CREATE TABLE aliases (name TEXT, alias TEXT, version INTEGER NOT NULL, PRIMARY KEY (name, alias)) WITHOUT ROWID;
INSERT INTO experiments VALUES ('0', 'Default', NULL, 'active', 0, 0);
"""

_FOREIGN = "SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger') LIMIT 1"
"""What is never ours: a view in the place of a table can keep its reader busy for ever."""
UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged database raises: Python decodes SQLite's message, which quotes the file's own names."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database to read and write, and make it where there is none; any thread may use the connection.

    Raises:
        sqlite3.Error: it is damaged or cannot be written, or a newer version of this tool has made it.
    """
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        if not _is_ready(connection):
            _set_up(connection)
        connection.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine may lose the last moment, no more
    except UnicodeDecodeError as error:
        connection.close()
        raise sqlite3.DatabaseError(f"{path.name} is damaged: what SQLite says of it is no text") from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection | None:
    """Open the database to read; None when there is none yet, or it cannot be read."""
    if not path.is_file():  # SQLite waits at a pipe
        return None
    uri = path.absolute().as_uri()
    for options in ("mode=ro", "mode=ro&immutable=1"):  # the second where the folder itself cannot be written to
        try:
            connection = sqlite3.connect(f"{uri}?{options}", uri=True, timeout=5, isolation_level=None)
        except sqlite3.Error:
            continue
        try:
            if _is_ready(connection) and not connection.execute(_FOREIGN).fetchone():
                connection.row_factory = sqlite3.Row
                return connection
        except UNREADABLE:
            pass
        connection.close()
    return None


def _is_ready(connection: sqlite3.Connection) -> bool:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version not in {0, _VERSION}:
        raise sqlite3.DatabaseError("another version of allranks has made tracking.db; use that one, or --runs-dir DIR")
    return version == _VERSION


def _set_up(connection: sqlite3.Connection) -> None:
    """Make the tables, unless another process has just done so."""
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError:  # no shared memory, as on some network shares: readers and writers take turns
        connection.execute("PRAGMA journal_mode = DELETE")
    with transaction(connection):
        if not _is_ready(connection):
            for statement in _TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Within the block all is written or nothing; others wait for its end."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
