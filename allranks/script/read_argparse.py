"""Arguments of argparse, and of what is called like it (jsonargparse's own parser), read from the text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allranks.script.arguments import (
    PAIR,
    SEVERAL,
    SWITCH,
    TRUTH,
    VALUE,
    Constant,
    FoundArguments,
    ScriptArgument,
    UnreadError,
    constant_names,
    constant_value,
    help_text,
    literal_type_of,
    plain_default,
    spaced_text,
)
from allranks.script.read_help import help_needed
from allranks.script.sources import ScriptSource, dotted_name

_TYPES = {"int": "integer", "float": "number", "str": "string"}
_PATH_TYPES = frozenset(["Path", "PurePath", "FileType", "PosixPath"])
_OF_A_LAUNCHER = frozenset(["local_rank", "local-rank", "rank", "world_size", "world-size", "node_rank", "dist_url"])
_NO_ARGUMENT = frozenset(["help", "version"])


def read_argparse(sources: Sequence[ScriptSource], found: FoundArguments) -> None:
    """Add the arguments of the first source, and of functions elsewhere that it calls.

    Raises:
        UsageError: it has subcommands, which only its ``--help`` lists.
    """
    names = constant_names(sources)
    main = sources[0]
    called = {dotted_name(node.func).rpartition(".")[2] for node in ast.walk(main.tree) if isinstance(node, ast.Call)}
    for source in sources:
        trees: list[ast.AST] = [main.tree] if source is main else list(_functions(source, called))
        defaults = {name: value for tree in trees for name, value in _set_defaults(tree, names)}
        for tree in trees:
            for call in _in_order(tree, "add_subparsers"):
                raise help_needed(source, call, "subcommands", main.path.name)
        for call in (call for tree in trees for call in _in_order(tree, "add_argument")):
            _add_call(call, source, names, defaults, found)
    found.description = found.description or _description(main, names)


def _functions(source: ScriptSource, called: set[str]) -> Iterator[ast.AST]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name in called and node.name != "main":
            yield node


def _in_order(tree: ast.AST, method: str) -> list[ast.Call]:
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
    ]
    return sorted(calls, key=lambda node: (node.lineno, node.col_offset))


def _set_defaults(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "set_defaults":
            for keyword in node.keywords:
                try:
                    yield keyword.arg or "", constant_value(keyword.value, names)
                except UnreadError:
                    continue


def _description(source: ScriptSource, names: Mapping[str, Any]) -> str:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and dotted_name(node.func).endswith("ArgumentParser"):
            for keyword in node.keywords:
                if keyword.arg == "description":
                    try:
                        return help_text(constant_value(keyword.value, names))
                    except UnreadError:
                        return ""
    return ""


def _add_call(
    call: ast.Call,
    source: ScriptSource,
    names: Mapping[str, Any],
    defaults: Mapping[str, Any],
    found: FoundArguments,
) -> None:
    place = source.place(call)
    try:
        flags = [constant_value(one, names) for one in call.args]
    except UnreadError:
        flags = []
    if not flags or not all(isinstance(one, str) for one in flags) or any(one.arg is None for one in call.keywords):
        found.unread.append(
            f"{place}: the name of an argument is only known when the script runs: {ast.unparse(call)[:80]}"
        )
        return
    keywords = {one.arg: one.value for one in call.keywords if one.arg is not None}
    argument = _argument(flags, keywords, place, names, defaults, found)
    if argument is not None:
        found.add(argument)


def _argument(
    flags: list[str],
    keywords: Mapping[str, ast.expr],
    place: str,
    names: Mapping[str, Any],
    defaults: Mapping[str, Any],
    found: FoundArguments,
) -> ScriptArgument | None:
    def read(key: str, what: str = "") -> Any:
        if key not in keywords:
            return None
        try:
            return constant_value(keywords[key], names)
        except UnreadError:
            if what:
                found.unread.append(f"{place}: {flags[0]}: {what}: {ast.unparse(keywords[key])[:80]}")
            return None

    flag = next((one for one in flags if one.startswith("--")), flags[0] if flags[0].startswith("-") else "")
    bare = flag.lstrip("-") or flags[0]
    if bare in _OF_A_LAUNCHER:
        found.unread.append(f"{place}: {flags[0]} is left to the launcher.")
        return None
    name = str(read("dest") or bare).replace("-", "_") if "dest" not in keywords else bare.replace("-", "_")
    action = read("action") or (dotted_name(keywords["action"]).rpartition(".")[2] if "action" in keywords else "store")
    dest = str(read("dest") or bare.replace("-", "_"))
    value = read("default", "its default is computed, and holds where the input has no value")
    value = defaults.get(dest, value)
    text = help_text(read("help"))
    common: dict[str, Any] = {"flag": flag, "name": name, "help": text, "place": place}
    if action in _NO_ARGUMENT:
        return None
    if action in ("store_true", "store_false", "store_const"):
        return ScriptArgument(**common, type="boolean", default=False, form=SWITCH)
    if action == "BooleanOptionalAction":
        return ScriptArgument(**common, type="boolean", default=value is True, form=PAIR, off=f"--no-{bare}")
    if action not in ("store", "append", "extend"):
        found.unread.append(f"{place}: {flags[0]}: action {action} is not known; the script's default holds.")
        return None
    kind, is_truth = _type(keywords.get("type"), value)
    required = bool(read("required")) if flag else read("nargs") not in ("?", "*") and value is None
    if read("nargs") not in (None, "?", 1) or action in ("append", "extend"):
        if action == "append":
            found.unread.append(f"{place}: {flags[0]} is given once for each value; the input gives it one.")
        several = spaced_text(value) if isinstance(value, list) else _fitting("string", plain_default(value))
        form = VALUE if action == "append" else SEVERAL
        kind = "path" if kind == "path" else "string"
        return ScriptArgument(**common, type=kind, default=several, required=required, form=form)
    if is_truth:
        return ScriptArgument(**common, type="boolean", default=bool(value), form=TRUTH, required=required)
    choices = _choices(keywords.get("choices"), names, place, flags[0], found)
    default = _fitting(kind, plain_default(value))
    return ScriptArgument(**common, type=kind, default=default, choices=choices, required=required)


def _type(node: ast.expr | None, value: Any) -> tuple[str, bool]:
    """The type of an argument, and whether it is a truth that is given as text."""
    if node is None:
        return "string", False  # argparse makes no number of a text because the default is one
    name = dotted_name(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
    if name in _TYPES:
        return _TYPES[name], False
    if name in _PATH_TYPES:
        return "path", False
    truth = "bool" in name.lower() or (isinstance(node, ast.Lambda) and "true" in ast.unparse(node).lower())
    if truth and name != "bool":
        return "boolean", True
    return ("string" if isinstance(value, bool) else literal_type_of(value)), False


def _choices(
    node: ast.expr | None, names: Mapping[str, Any], place: str, flag: str, found: FoundArguments
) -> tuple[Constant, ...]:
    if node is None:
        return ()
    try:
        if isinstance(node, ast.Call) and dotted_name(node.func) == "range":
            return tuple(range(*(constant_value(one, names) for one in node.args)))[:1000]
        value = constant_value(node, names)
    except (UnreadError, TypeError):
        found.unread.append(f"{place}: {flag}: its choices are computed: {ast.unparse(node)[:80]}")
        return ()
    listed = value if isinstance(value, list) else []
    return tuple(one for one in listed if isinstance(one, str | int | float))


def _fitting(kind: str, default: Constant | None) -> Constant | None:
    """A default as the type of its input has it."""
    if default is None:
        return None
    if kind in ("string", "path"):
        return plain_default(str(default))
    if kind == "number" and isinstance(default, int | float):
        return float(default)
    if kind == "integer" and isinstance(default, int):
        return default
    return None
