"""A pipeline as JSON and back, whole: what a run keeps, so that it can be resumed when its files are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

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
    return _KINDS[kind](**{k: MappingProxyType(one) if isinstance(one, dict) else one for k, one in attributes.items()})


_KINDS: dict[str, Any] = {
    name: one
    for module in (model, needs, component_kinds, parallel)
    for name, one in vars(module).items()
    if is_dataclass(one)
}
