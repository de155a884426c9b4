"""Options and arguments of click's decorators, read from the text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from allranks.script.arguments import (
    PAIR,
    SEVERAL,
    SWITCH,
    TRUTH,
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
from allranks.script.sources import ScriptSource, dotted_name

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "INT": "integer", "FLOAT": "number"}
_TYPES |= {"STRING": "string", "BOOL": "boolean", "Path": "path", "File": "path", "IntRange": "integer"}
_TYPES |= {"FloatRange": "number"}


def read_click(source: ScriptSource, found: FoundArguments) -> None:
    """Add the parameters of the one command of a script; those of a group's commands are not one command line."""
    names = constant_names([source])
    commands = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef):
            kinds = [_decorator_name(one) for one in node.decorator_list]
            if "group" in kinds:
                found.unread.append(
                    f"{source.place(node)}: {node.name} is a group; write the command and its options yourself."
                )
            elif "command" in kinds:
                commands.append(node)
    if len(commands) > 1:
        listed = ", ".join(node.name for node in commands)
        found.unread.append(
            f"{source.path.name}: there are several commands ({listed}); none of their options is read."
        )
        return
    for command in commands:
        found.description = found.description or help_text(ast.get_docstring(command) or "")
        for decorator in command.decorator_list:
            if isinstance(decorator, ast.Call) and _decorator_name(decorator) in ("option", "argument"):
                _add(decorator, source, names, found)


def _decorator_name(node: ast.expr) -> str:
    return dotted_name(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _add(call: ast.Call, source: ScriptSource, names: Mapping[str, Any], found: FoundArguments) -> None:
    place = source.place(call)
    keywords = {one.arg: one.value for one in call.keywords if one.arg is not None}
    try:
        declared = [str(constant_value(one, names)) for one in call.args]
    except UnreadError:
        declared = []
    if not declared:
        found.unread.append(
            f"{place}: the name of an option is only known when the script runs: {ast.unparse(call)[:80]}"
        )
        return

    def read(key: str) -> Any:
        try:
            return constant_value(keywords[key], names) if key in keywords else None
        except UnreadError:
            if key == "default":
                found.unread.append(
                    f"{place}: {declared[0]}: its default is computed: {ast.unparse(keywords[key])[:80]}"
                )
            return None

    flag = next((one for one in declared if one.startswith("--")), next((o for o in declared if o.startswith("-")), ""))
    flag, _, off = (part.strip() for part in flag.partition("/"))
    name = next((one for one in declared if not one.startswith("-")), flag.lstrip("-")).replace("-", "_").lower()
    value, default = read("default"), plain_default(read("default"))
    kind, choices, low, high = _type(keywords.get("type"), value, names)
    is_required = bool(read("required")) if flag else read("required") is not False and value is None
    common: dict[str, Any] = {"name": name, "help": help_text(read("help")), "place": place}
    if off:
        is_on = value if isinstance(value, bool) else False
        found.add(ScriptArgument(flag, **common, type="boolean", default=is_on, form=PAIR, off=off))
    elif read("is_flag") or read("count"):
        found.add(ScriptArgument(flag, **common, type="boolean", default=False, form=SWITCH))
    elif kind == "boolean":
        found.add(ScriptArgument(flag, **common, type=kind, default=bool(value), form=TRUTH, required=is_required))
    elif read("multiple") or read("nargs") not in (None, 1):
        text = spaced_text(value) if isinstance(value, list) else None
        if read("multiple"):
            found.unread.append(f"{place}: {flag} is given once for each value; the input gives it one.")
        form = SEVERAL if not read("multiple") else "value"
        found.add(ScriptArgument(flag, **common, default=text, form=form, required=is_required))
    else:
        if kind in ("string", "path"):
            default = None if default is None else str(default)
        if kind == "number" and default is not None:
            default = float(default)
        found.add(
            ScriptArgument(
                flag, **common, type=kind, default=default, choices=choices, required=is_required, min=low, max=high
            )
        )


def _type(
    node: ast.expr | None, default: Any, names: Mapping[str, Any]
) -> tuple[str, tuple[Constant, ...], float | None, float | None]:
    """The type, the choices and the range of a parameter; without a type that of its default, as click has it."""
    if node is None:
        return literal_type_of(default), (), None, None
    name = dotted_name(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
    try:
        arguments = [constant_value(one, names) for one in node.args] if isinstance(node, ast.Call) else []
        keywords = {k.arg: constant_value(k.value, names) for k in node.keywords} if isinstance(node, ast.Call) else {}
    except UnreadError:
        arguments, keywords = [], {}
    if name == "Choice":
        listed = arguments[0] if arguments and isinstance(arguments[0], list) else []
        return "string", tuple(str(one) for one in listed), None, None
    low = keywords.get("min", arguments[0] if arguments and name.endswith("Range") else None)
    high = keywords.get("max", arguments[1] if len(arguments) > 1 and name.endswith("Range") else None)
    return _TYPES.get(name, "string"), (), low, high
