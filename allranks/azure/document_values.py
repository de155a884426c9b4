"""Values of the SDK's entities as JSON has them, and paths as a document of somewhere else can hold them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from azure.ai.ml import Input

_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:|\$\{\{")
_DECLARATION = ("type", "default", "optional", "enum", "min", "max", "mode", "description")


def plain_value(value: Any) -> Any:
    """JSON's types; whatever refers to something becomes the text of its binding."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def value_text(value: Any) -> str:
    """The path of an input, or the text of a binding."""
    return str(value.path) if isinstance(value, Input) else str(value)


def absolute_path(path: str) -> str:
    """A local path becomes absolute, from the working directory, as the SDK takes it; an address stays."""
    return path if _ADDRESS.match(path) else str(Path(path).absolute())


def path_below(base: Path, path: Any) -> str | None:
    """A path from a component's folder, absolute; an address stays, and so does None."""
    if path is None:
        return None
    return str(path) if _ADDRESS.match(str(path)) else str((base / str(path)).resolve())


def without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys that say nothing."""
    return {key: value for key, value in document.items() if value is not None and value not in ({}, [])}


def picked_fields(source: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Some fields of an entity or of a dict, with pipeline parameters as the text of their binding."""
    values = source if isinstance(source, dict) else {key: getattr(source, key, None) for key in keys}
    return without_empty({key: plain_value(values.get(key)) for key in keys})


def flat_ports(inputs: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every declared input; those of a group by their dotted names."""
    for name, declared in inputs.items():
        if declared.type == "group":
            yield from flat_ports(declared.values, f"{prefix}{name}.")
        else:
            yield prefix + name, declared


def declaration_document(declared: Any) -> dict[str, Any]:
    """What a component's YAML would say of an input."""
    found = {key: plain_value(getattr(declared, key, None)) for key in _DECLARATION}
    return {key: value for key, value in found.items() if value not in (None, []) and (value or key != "description")}
