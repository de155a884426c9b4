"""Keys of Hydra's configuration, which are given as ``key=value``: read from the YAML file that the script names."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from allranks.script.arguments import (
    OVERRIDE,
    FoundArguments,
    ScriptArgument,
    UnreadError,
    constant_names,
    constant_value,
    literal_type_of,
    plain_default,
)
from allranks.script.sources import ScriptSource, dotted_name

_RUN_DIR = ScriptArgument(
    "hydra.run.dir", "output_dir", "path", help="where Hydra writes its log and the run's configuration", form=OVERRIDE
)
_PLAIN = re.compile(r"[\w./:@+\-]+(,[\w./:@+\-]+)*|\[[\w., \"+\-]*\]")  # what Hydra's grammar takes without quotes
_MISSING = "???"


def read_hydra(source: ScriptSource, found: FoundArguments) -> None:
    """Add a value for each key of the configuration, a choice for each group, and the folder of the run."""
    for node in ast.walk(source.tree):
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and dotted_name(decorator.func) in ("hydra.main", "main"):
                _read_main(decorator, source, found)


def _read_main(decorator: ast.Call, source: ScriptSource, found: FoundArguments) -> None:
    names, given = constant_names([source]), dict[str, Any]()
    for key, value in [
        *zip(("config_path", "config_name"), decorator.args, strict=False),
        *((one.arg or "", one.value) for one in decorator.keywords),
    ]:
        try:
            given[key] = constant_value(value, names)
        except UnreadError:
            continue
    name = str(given.get("config_name") or "config").removesuffix(".yaml")
    folder = source.path.parent / str(given.get("config_path") or ".")
    file = folder / f"{name}.yaml"
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        document = None
    if not isinstance(document, Mapping):
        shown = file.relative_to(source.path.parent) if file.is_relative_to(source.path.parent) else file
        words = f"Hydra's configuration is not in {shown}; write key=value into the command for what you want to set."
        found.unread.append(f"{source.place(decorator)}: {words}")
        found.add(_RUN_DIR)
        return
    for group, chosen in _groups(document.get("defaults")):
        choices = tuple(sorted(path.stem for path in (folder / group).glob("*.yaml")))
        if chosen in choices:
            place = f"{file.name}: defaults"
            found.add(
                ScriptArgument(group, group.replace("/", "_"), "string", chosen, choices, form=OVERRIDE, place=place)
            )
    for key, value in _leaves(document, ""):
        _add_key(key, value, file.name, found)
    if not any(one.flag == _RUN_DIR.flag for one in found.arguments):
        found.add(_RUN_DIR)


def _groups(defaults: Any) -> Iterator[tuple[str, str]]:
    """``model: resnet`` of the list of defaults; what only Hydra itself chooses is left out."""
    for one in defaults if isinstance(defaults, list) else ():
        for group, chosen in one.items() if isinstance(one, Mapping) else ():
            if isinstance(chosen, str) and " " not in str(group) and not str(group).startswith("hydra/"):
                yield str(group), chosen


def _leaves(document: Mapping[Any, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        name = f"{above}{key}"
        if not isinstance(key, str) or name in ("defaults", "hydra"):
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _add_key(key: str, value: Any, place: str, found: FoundArguments) -> None:
    if isinstance(value, str) and "${" in value:
        return  # made of other keys
    name = key.replace(".", "_")
    if value is None or value == _MISSING:
        found.add(ScriptArgument(key, name, required=value == _MISSING, form=OVERRIDE, place=place))
        return
    if isinstance(value, list):
        is_plain = all(isinstance(one, str | int | float) for one in value)
        value = json.dumps(value) if is_plain else ""
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        words = (
            f"{place}: {key}: {value[:40]!r} would have to be quoted for Hydra; it holds where the input has no value."
        )
        found.unread.append(words)
        value = None
    default = plain_default(value)
    kind = literal_type_of(value) if default is not None else "string"
    found.add(ScriptArgument(key, name, kind, default, form=OVERRIDE, place=place))
