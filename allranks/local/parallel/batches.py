"""How the input of a parallel step is divided into mini batches: by the number of files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from allranks.errors import CannotRunHereError
from allranks.local.parallel.tables import list_files, list_table_files

MiniBatch: TypeAlias = list[str]
"""The paths that a worker is told."""

_FILES = 1  # of a mini batch, where the YAML is silent, by Azure's reference


def divide_input(path: Path, type_: str, size: int | None) -> list[MiniBatch]:
    """All mini batches of an input, in an order that depends on the data alone.

    Raises:
        CannotRunHereError: there is nothing to divide, or not in the way that is asked for.
    """
    found = list_table_files(path) if type_ == "mltable" else list_files(path)
    if not found:
        raise CannotRunHereError(f"there is no file in {path}.")
    count = size or _FILES
    files = [str(file) for file in found]
    return [files[start : start + count] for start in range(0, len(files), count)]
