"""Flags of absl, which are declared wherever a module likes to."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.script.arguments import (
    PAIR,
    FoundArguments,
    ScriptArgument,
    UnreadError,
    constant_names,
    constant_value,
    help_text,
    plain_default,
)
from allranks.script.sources import ScriptSource, dotted_name

_TYPES = {"integer": "integer", "float": "number", "string": "string", "boolean": "boolean", "bool": "boolean"}
_TYPES |= {"enum": "string", "list": "string", "spaceseplist": "string", "enum_class": "", "multi_string": "string"}
_TYPES |= {"multi_integer": "string", "multi_float": "string", "multi_enum": "string"}
_MARKS = ("mark_flag_as_required", "mark_flags_as_required")


def read_absl(sources: Sequence[ScriptSource], found: FoundArguments) -> None:
    """Add the flags of a script and of its modules."""
    names = constant_names(sources)
    required: set[str] = set()
    flags: list[ScriptArgument] = []
    for source in sources:
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            kind = dotted_name(call.func).rpartition(".")[2]
            if kind in _MARKS and call.args:
                given = _value(call.args[0], names)
                required.update(map(str, given) if isinstance(given, list) else [str(given)])
            elif kind.startswith("DEFINE_"):
                flags += _flag(call, kind.removeprefix("DEFINE_"), source, names, found)
    for flag in flags:
        found.add(replace(flag, required=flag.required or flag.name in required))


def _flag(
    call: ast.Call, kind: str, source: ScriptSource, names: Mapping[str, Any], found: FoundArguments
) -> list[ScriptArgument]:
    order = ("name", "default", "enum_values", "help") if "enum" in kind else ("name", "default", "help")
    given: dict[str, ast.expr] = dict(zip(order, call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg}
    place = source.place(call)
    name = _value(given.get("name"), names)
    if not isinstance(name, str) or not _TYPES.get(kind):
        words = f"a flag that is only known when the script runs: {ast.unparse(call)[:80]}"
        found.unread.append(f"{place}: {words}")
        return []
    try:
        value = constant_value(given["default"], names) if "default" in given else None
    except UnreadError:
        found.unread.append(f"{place}: --{name}: its default is computed, and holds where the input has no value")
        value = None
    if kind.startswith("multi_"):
        found.unread.append(f"{place}: --{name} is given once for each value; the input gives it one.")
        value = value[0] if isinstance(value, list) and len(value) == 1 else None
    elif isinstance(value, list):
        value = (" " if kind == "spaceseplist" else ",").join(map(str, value))
    base = ScriptArgument(
        f"--{name}", name, _TYPES[kind], help=help_text(_value(given.get("help"), names)), place=place
    )
    if base.type == "boolean":
        return [replace(base, default=bool(value), form=PAIR, off=f"--no{name}")]
    listed = _value(given.get("enum_values"), names)
    choices = tuple(map(str, listed)) if isinstance(listed, list) else ()
    is_required = _value(given.get("required"), names) is True
    default = plain_default(value)
    if default is not None:
        default = float(default) if base.type == "number" else str(default) if base.type == "string" else default
    return [replace(base, default=default, choices=choices, required=is_required)]


def _value(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    try:
        return None if node is None else constant_value(node, names)
    except UnreadError:
        return None
