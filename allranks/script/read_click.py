"""Options and arguments of click's decorators, read from the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from packaging.version import Version

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
from allranks.script.subcommands import Subcommand, leaf_subcommands

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "INT": "integer", "FLOAT": "number"}
_TYPES |= {"STRING": "string", "BOOL": "boolean", "Path": "path", "File": "path", "IntRange": "integer"}
_TYPES |= {"FloatRange": "number"}


def read_click(source: ScriptSource, found: FoundArguments) -> None:
    """Add the parameters of the one command of a script, or of a group's command with those of its groups.

    Raises:
        UsageError: it has several commands, and which one is meant is not said.
    """
    names = constant_names([source])
    commands = _Commands(source, names)
    words: list[ast.FunctionDef] = []
    if commands.paths:
        chosen = found.choose(leaf_subcommands(commands.paths), source.path.name)
        words = [commands.paths[chosen[: length + 1]] for length in range(len(chosen))]
    top = commands.top(words[0] if words else None)
    for level, command in enumerate([*top, *words], start=1 - len(top)):
        if command is (words or top)[-1]:
            found.description = found.description or help_text(ast.get_docstring(command) or "")
        for decorator in command.decorator_list:
            if isinstance(decorator, ast.Call) and _decorator_name(decorator) in ("option", "argument"):
                _add(decorator, source, names, found, level)


class _Commands:
    """The commands and groups of a script, by the words that start them.

    Attributes:
        paths: of each command of a group the words behind the script; groups within groups are among them.
    """

    def __init__(self, source: ScriptSource, names: Mapping[str, Any]) -> None:
        self._names = names
        self._functions: dict[str, ast.FunctionDef] = {}
        self._above: dict[str, tuple[str, str]] = {}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef):
                self._add_function(node)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and node.args and dotted_name(node.func).endswith(".add_command"):
                owner, added = dotted_name(node.func).rpartition(".")[0], dotted_name(node.args[0])
                if added in self._functions:
                    named = self._word(node.args[1:], node.keywords)
                    self._above[added] = (owner, named or self._declared_name(self._functions[added]))
        called = {dotted_name(node.func) for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
        lone = [name for name in self._functions if name not in self._above]
        self._lone = [name for name in lone if name in called] or lone
        self.paths = {path: self._functions[name] for name in self._above if (path := self._path(name))}

    def top(self, below: ast.FunctionDef | None) -> list[ast.FunctionDef]:
        """The command that is no group's: the group above another one, or what the script calls."""
        if below is None:
            return [self._functions[name] for name in self._lone[:1]]
        above = self._above[below.name][0]
        return [self._functions[above]] if above in self._functions else []

    def _add_function(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            if _decorator_name(decorator) not in ("command", "group"):
                continue
            self._functions[node.name] = node
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            owner = dotted_name(call).rpartition(".")[0]
            if owner not in ("", "click"):
                self._above[node.name] = (owner, self._declared_name(node))

    def _declared_name(self, node: ast.FunctionDef) -> str:
        for one in node.decorator_list:
            if not isinstance(one, ast.Call) or _decorator_name(one) not in ("command", "group"):
                continue
            if word := self._word(one.args, one.keywords):
                return word
        return _default_name(node.name)

    def _word(self, arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> str:
        """A command's name where it is given, first or as ``name=``; empty where it is not."""
        given = [*arguments[:1], *(one.value for one in keywords if one.arg == "name")]
        for one in given:
            try:
                value = constant_value(one, self._names)
            except UnreadError:
                continue
            if isinstance(value, str):
                return value
        return ""

    def _path(self, name: str) -> Subcommand:
        words: list[str] = []
        while name in self._above and len(words) <= len(self._above):
            name, word = self._above[name]
            words[:0] = [word]
        return tuple(words)


def _default_name(function: str) -> str:
    """A command's name by its function's: click 8.2 and later leave out what says no more than that it is one."""
    name = function.lower().replace("_", "-")
    short = re.sub(r"-(command|cmd|group|grp)$", "", name)
    try:
        is_old = Version(metadata.version("click")) < Version("8.2")
    except metadata.PackageNotFoundError:
        is_old = False
    return name if is_old else short


def _decorator_name(node: ast.expr) -> str:
    return dotted_name(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _add(call: ast.Call, source: ScriptSource, names: Mapping[str, Any], found: FoundArguments, level: int) -> None:
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
    common: dict[str, Any] = {"name": name, "help": help_text(read("help")), "place": place, "level": level}
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
