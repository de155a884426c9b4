"""How much the tool takes on of what it is given: all such limits in one place, far above what people write.

Without them a file of a few lines can take the memory of a machine, end the interpreter, or never end. A message that
meets one says its value and how to raise it. What only shortens what is shown (lines of a log, points of a curve)
refuses nothing, and stands where it is shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from allranks.errors import UsageError

VARIABLE = "ALLRANKS_BUDGET"
"""The environment variable that changes limits: ``steps=20000,depth=200``."""


def _limit(default: int, most: int, what: str) -> Any:
    return field(default=default, metadata={"most": most, "what": what})


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits in force; each field's metadata says what it counts, and how far it can be raised."""

    yaml_bytes: int = _limit(8 * 2**20, 2**30, "bytes of one YAML file")
    # libyaml composes by recursion, unchecked: 30,000 end the interpreter.
    depth: int = _limit(100, 200, "mappings and lists inside each other in a YAML file")
    # Python refuses to write more than 4,300, and no double holds more than 309.
    digits: int = _limit(300, 4_000, "digits of an integer in a YAML file")
    nested: int = _limit(20, 50, "pipelines inside each other, over files")
    # Ten files that name each other four times have a million.
    steps: int = _limit(5_000, 1_000_000, "steps of a pipeline, with those of its nested pipelines")
    ranks: int = _limit(10_000, 1_000_000, "ranks of a step, each of which has its own variables")
    list_files: int = _limit(20, 50, "requirements files that name each other with -r")
    output_characters: int = _limit(65_536, 2**24, "characters of an output that decides a branch")
    record_bytes: int = _limit(64 * 2**20, 2**30, "bytes of a file in which a run says how it went")
    # A folder with more is somebody's home, and not a script's: every node would get a copy of it.
    script_files: int = _limit(20_000, 10_000_000, "files in the folder of a script")
    script_bytes: int = _limit(2 * 10**9, 10**12, "bytes in the folder of a script")

    def how_to_raise(self, name: str) -> str:
        """The end of a message about a limit: how to raise it, and how far."""
        return f"To raise the limit: {VARIABLE}={name}=N, N up to {_field(name).metadata['most']:,}."


def current_budget() -> Budget:
    """The limits, as the environment has them now.

    Raises:
        UsageError: the variable names something else, or a number out of range.
    """
    return _read_budget(os.environ.get(VARIABLE, ""))


@lru_cache(maxsize=4)
def _read_budget(text: str) -> Budget:
    values: dict[str, int] = {}
    known = [one.name for one in fields(Budget)]
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in known:
            raise UsageError(f"{VARIABLE}: {name!r:.60} is no limit.", f"The limits: {', '.join(known)}.")
        most = _field(name).metadata["most"]
        if not (value.isascii() and value.isdecimal() and len(value) <= 15 and 1 <= int(value) <= most):
            raise UsageError(f"{VARIABLE}: {name}={value!s:.60} is no whole number from 1 to {most:,}.")
        values[name] = int(value)
    return Budget(**values)


def _field(name: str) -> Any:
    return next(one for one in fields(Budget) if one.name == name)
