"""What the handlers of requests have in common: the database, the folder of files, errors, and plain conversions."""

from __future__ import annotations

import math
import sqlite3
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from allranks.local.folders import RunsHome, child
from allranks.local.private_files import make_private_folder
from allranks.local.tracking.database import open_database

MISSING, INVALID, EXISTS = "RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS"
ABSENT = "ENDPOINT_NOT_FOUND"
"""MLflow's clients do not retry it."""


class TrackingError(Exception):
    """What MLflow's clients raise as ``MlflowException``: an error code of MLflow's and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TrackingStore:
    """The tracked runs of one runs folder, to read and to write.

    Attributes:
        connection: of any thread, one at a time.
        files: where clients put artifacts; not stored in the database, so that a runs folder can be moved.
        database: the file.

    Raises:
        StorageError: the folder cannot be written to.
        sqlite3.Error: the database cannot be opened.
    """

    def __init__(self, home: RunsHome) -> None:
        make_private_folder(home.mlflow_files)
        self.connection = open_database(home.tracking)
        self.files = home.mlflow_files.absolute()
        self.database = home.tracking

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def location(self, experiment_id: str, given: str | None) -> str:
        """Where the files of an experiment lie, as a URI: where its maker said, or below ``files``."""
        return given or self.folder(experiment_id).as_uri()

    def folder(self, *ids: object) -> Path:
        """Return a folder below ``files``, by ids of the database; StorageError where one is not a plain name."""
        return child(self.files, *ids, source=self.database)

    def row(self, query: str, *values: object) -> sqlite3.Row | None:
        """The first row of a query."""
        found: sqlite3.Row | None = self.connection.execute(query, values).fetchone()
        return found

    # Tags and parameters, which several kinds of entities have

    def pairs(self, table: str, kind: str, owner: str) -> list[dict[str, str]]:
        """The tags or params of an entity, as MLflow's messages have them."""
        rows = self.connection.execute(f"SELECT key, value FROM {table} WHERE kind = ? AND owner = ?", (kind, owner))
        return [{"key": key, "value": value} for key, value in rows]

    def set_tags(self, kind: str, owner: str, tags: Iterable[Mapping[str, Any]]) -> None:
        """Set tags; one that is there gets the new value."""
        rows = [(kind, owner, text_of(tag, "key"), str(tag.get("value", ""))) for tag in tags]
        self.connection.executemany("INSERT OR REPLACE INTO tags VALUES (?, ?, ?, ?)", rows)

    def delete_tag(self, kind: str, owner: str, key: str) -> bool:
        """Delete a tag; whether there was one."""
        values = (kind, owner, key)
        return self.connection.execute("DELETE FROM tags WHERE kind = ? AND owner = ? AND key = ?", values).rowcount > 0


def text_of(request: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A field of a request.

    Raises:
        TrackingError: it is not there, or is empty, and has no default.
    """
    value = request.get(name)
    if value is None or value == "":
        if default is not None:
            return default
        raise TrackingError(INVALID, f"Missing value for required parameter '{name}'.")
    if not isinstance(value, str | int | float):
        raise TrackingError(INVALID, f"Invalid value {str(value)[:100]} for parameter '{name}': expected text.")
    return str(value)


def whole_of(request: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of a request, which JSON may hold as text.

    Raises:
        TrackingError: it is none.
    """
    value = request.get(name)
    try:
        return default if value is None or value == "" else _within_64_bits(int(value))
    except (TypeError, ValueError, OverflowError):
        raise TrackingError(INVALID, f"Invalid value '{value}' for parameter '{name}': expected an integer.") from None


def _within_64_bits(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError(value)
    return value


def list_of(request: Mapping[str, Any], name: str) -> list[Any]:
    """A list of a request; a single value, as in the query of an address, is a list of one.

    Raises:
        TrackingError: it is an object.
    """
    value = request.get(name)
    if isinstance(value, Mapping):
        raise TrackingError(INVALID, f"Invalid value for parameter '{name}': expected a list.")
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def objects_of(request: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of objects of a request.

    Raises:
        TrackingError: something in it is no object.
    """
    found = list_of(request, name)
    if not all(isinstance(item, Mapping) for item in found):
        raise TrackingError(INVALID, f"Invalid value for parameter '{name}': expected a list of objects.")
    return found


def number_of(value: object) -> float | None:
    """A metric's value, for the database: NaN is None there, and infinities are themselves.

    Raises:
        TrackingError: it is no number.
    """
    try:
        number = float(value)  # type: ignore[arg-type]  # "NaN" and "Infinity" are texts in JSON
    except (TypeError, ValueError, OverflowError):
        raise TrackingError(
            INVALID, f"Got invalid value {str(value)[:100]!r} for a metric: expected a number."
        ) from None
    return None if math.isnan(number) else number


def shown_number(value: float | None) -> float | str:
    """A metric's value in JSON as protocol buffers write it: NaN and the infinities have names."""
    if value is None:
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


def new_id() -> str:
    """A new identifier, of 32 hexadecimal digits."""
    return uuid.uuid4().hex


def files_below(uri: str) -> Path | None:
    """The folder of a ``file`` URI; None for another kind of place."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # a bracket that nobody closes
        return None
    return Path(unquote(parts.path)) if parts.scheme in {"", "file"} else None
