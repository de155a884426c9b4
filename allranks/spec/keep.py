"""A pipeline as JSON and back, whole: what a run keeps, so that it can be resumed when its files are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints
from typing import Literal as LiteralType

from allranks.spec import component_kinds, model, needs, parallel
from allranks.spec.model import Pipeline

_KIND = "$kind"  # of what JSON has no form for; no key of Azure ML's YAML begins so but $schema, which is not kept
_NOT_KEPT = ("lines", "texts", "problems")  # of a source: where things stood in the file


def kept_document(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline as JSON, with its components and everything that they say; ``kept_pipeline`` reads it."""
    return cast("dict[str, Any]", _plain(pipeline))


def kept_pipeline(document: Mapping[str, Any]) -> Pipeline:
    """The pipeline that ``kept_document`` was given; raises ValueError for one of another version."""
    try:
        return cast("Pipeline", _built(document))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not of this version: {error}") from error


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kept = {one.name: _plain(getattr(value, one.name)) for one in fields(value) if one.name not in _NOT_KEPT}
        return {_KIND: type(value).__name__, **kept}
    if isinstance(value, Path):
        return {_KIND: "Path", "path": str(value)}
    if isinstance(value, tuple):
        return {_KIND: "tuple", "items": [_plain(one) for one in value]}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _built(value: Any) -> Any:
    if isinstance(value, list):
        return [_built(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {key: _built(one) for key, one in value.items()}
    if kind == "Path":
        return Path(value["path"])
    if kind == "tuple":
        return tuple(_built(one) for one in value["items"])
    if kind not in _KINDS:
        raise ValueError(f"not of this version: a {kind}")
    attributes = {name: _built(one) for name, one in value.items() if name != _KIND}
    made = _KINDS[kind](**{k: MappingProxyType(one) if isinstance(one, dict) else one for k, one in attributes.items()})
    check_fields(made)
    return made


def check_fields(made: Any) -> None:
    """See that each field of a dataclass holds what it is declared to; raises ValueError naming one that does not."""
    hints = _hints(made.__class__)
    for one in fields(made):
        value = getattr(made, one.name)
        if not _is_of(value, hints[one.name]):
            raise ValueError(f"not of this version: {type(made).__name__}.{one.name} is {value!r:.60}")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_of(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_is_of(value, one) for one in inner)
    if origin is LiteralType:
        return value in inner
    if origin is tuple:
        return isinstance(value, tuple) and (
            all(_is_of(one, inner[0]) for one in value)
            if inner[-1] is Ellipsis
            else len(value) == len(inner) and all(map(_is_of, value, inner))
        )
    if origin is not None:
        is_mapping = isinstance(value, Mapping) and len(inner) == 2
        return isinstance(value, origin) and (
            not is_mapping or all(_is_of(k, inner[0]) and _is_of(one, inner[1]) for k, one in value.items())
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is str:  # half a character could not be written anywhere, and no path and no argument holds NUL
        return isinstance(value, str) and "\0" not in value and value == value.encode(errors="replace").decode()
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


_KINDS: dict[str, Any] = {
    name: one
    for module in (model, needs, component_kinds, parallel)
    for name, one in vars(module).items()
    if is_dataclass(one)
}
