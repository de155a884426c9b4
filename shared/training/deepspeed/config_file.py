"""The configuration file of DeepSpeed as the user wrote it: JSON, read before anything else is done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from shared.distributed import Refusal
from shared.settings.command_line import refusing_once

AUTO_VALUE = "auto"
"""A value that the component fills in, as with the Hugging Face Trainer."""

ConfigFile = Mapping[str, object]
"""The file's object; empty without a file."""


def read_config_file(path: Path | None) -> ConfigFile:
    """Read the configuration file; it is empty where `path` is None.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if it is no JSON object.
    """
    if path is None:
        return {}
    with refusing_once():
        return _read(path)


def _read(path: Path) -> ConfigFile:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats)
    except OSError as error:
        raise Refusal(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise Refusal(f"The configuration file {path} is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise Refusal(
            f"The configuration file {path} has to hold a JSON object, {{...}}, not a {type(found).__name__}."
        )
    return found


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} is given twice in one object")
    return dict(pairs)


def is_set(value: object) -> bool:
    """Whether the file decides a value: it is there and not "auto"."""
    return value is not None and value != AUTO_VALUE


def read_section(file: ConfigFile, *names: str) -> dict[str, object]:
    """A copy of a section, empty if it is not there or no object; the first of several names that is there."""
    for name in names:
        found = file.get(name)
        if isinstance(found, dict):
            return dict(found)
    return {}


def suggest_key(word: str, choices: Iterable[str]) -> str:
    """A hint for a word that is none of the choices: the nearest one, or nothing."""
    near = get_close_matches(word.lower(), list(choices), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""
