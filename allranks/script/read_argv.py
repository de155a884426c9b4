"""Arguments that a script takes from ``sys.argv`` by their places, without a library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from allranks.script.arguments import (
    FoundArguments,
    ScriptArgument,
    UnreadError,
    constant_names,
    constant_value,
    literal_type_of,
    plain_default,
)
from allranks.script.sources import ScriptSource, dotted_name

_TYPES = {"int": "integer", "float": "number", "str": "string", "Path": "path"}


def read_argv(source: ScriptSource, found: FoundArguments) -> None:
    """Add what stands at ``sys.argv[1]``, ``sys.argv[2]`` …, named by the variables that it is given to.

    What is taken in another way, in a loop or as a slice, is noted: nobody can tell how many words it takes.
    """
    places: dict[int, ScriptArgument] = {}
    names = constant_names([source])
    holders = {node: above for above in ast.walk(source.tree) for node in ast.iter_child_nodes(above)}
    for node in _argv_uses(source):
        above = holders.get(node)
        if isinstance(above, ast.Call) and dotted_name(above.func) == "len":
            continue
        number = _place_number(above, node)
        if number == 0:
            continue
        if number is not None and isinstance(above, ast.Subscript):
            argument = _argument(above, number, source, holders, names)
            if number not in places or places[number].name.startswith("argument_"):
                places[number] = argument
        elif not _unpacked(node, source, holders, places):
            found.unread.append(
                f"{source.place(node)}: sys.argv is not read by places: {ast.unparse(above or node)[:60]};"
                " write the arguments into the command yourself."
            )
    for number in range(1, max(places, default=0) + 1):
        if number not in places:
            found.unread.append(
                f"{source.path.name}: sys.argv[{number}] is not read where it is used; none behind it is."
            )
            return
        found.add(places[number])


def _argv_uses(source: ScriptSource) -> Iterator[ast.expr]:
    """Each ``sys.argv`` in the order of the text."""
    is_bare = any(
        isinstance(node, ast.ImportFrom) and node.module == "sys" and any(one.name == "argv" for one in node.names)
        for node in ast.walk(source.tree)
    )
    wanted = ("sys.argv", "argv") if is_bare else ("sys.argv",)
    found = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute | ast.Name) and dotted_name(node) in wanted
    ]
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _place_number(above: ast.AST | None, node: ast.expr) -> int | None:
    if isinstance(above, ast.Subscript) and above.value is node and isinstance(above.slice, ast.Constant):
        return above.slice.value if isinstance(above.slice.value, int) else None
    return None


def _argument(
    node: ast.Subscript, number: int, source: ScriptSource, holders: dict[ast.AST, ast.AST], names: dict[str, Any]
) -> ScriptArgument:
    """The argument at a place: its type by what it is passed to, its default by the other half of an ``if``."""
    kind, value, is_optional = "string", None, _is_counted(node, holders)
    inner: ast.AST = node
    above: ast.AST | None = holders.get(node)
    while isinstance(above, ast.Call | ast.IfExp):
        if isinstance(above, ast.Call):
            kind = _TYPES.get(dotted_name(above.func).rpartition(".")[2], kind)
        elif isinstance(above, ast.IfExp):
            is_optional = True
            try:
                value = plain_default(constant_value(above.orelse, names))
            except UnreadError:
                value = None
        inner, above = above, holders.get(above)
    name = _variable(inner, above, holders)
    if value is not None and kind == "string" and literal_type_of(value) != "boolean":
        kind = literal_type_of(value)
    if value is not None and kind in ("string", "path"):
        value = str(value)
    found = ScriptArgument("", name or f"argument_{number}", kind, value, place=source.place(node))
    return replace(found, required=not is_optional)


def _variable(inner: ast.AST, above: ast.AST | None, holders: dict[ast.AST, ast.AST]) -> str:
    """The variable that an expression is given to, alone or as one of ``a, b = …``; empty for none."""
    if isinstance(above, ast.Tuple) and isinstance(pair := holders.get(above), ast.Assign):
        targets = pair.targets[0].elts if isinstance(pair.targets[0], ast.Tuple) else []
        number = next(number for number, one in enumerate(above.elts) if one is inner)
        return dotted_name(targets[number]).rpartition(".")[2] if number < len(targets) else ""
    target = above.targets[0] if isinstance(above, ast.Assign) else getattr(above, "target", None)
    return dotted_name(target).rpartition(".")[2] if isinstance(target, ast.Name | ast.Attribute) else ""


def _is_counted(node: ast.AST, holders: dict[ast.AST, ast.AST]) -> bool:
    """Whether it is read only where there are so many: ``if len(sys.argv) > 1: …``."""
    while (above := holders.get(node)) is not None:
        if isinstance(above, ast.If) and node in above.body and "argv" in ast.unparse(above.test):
            return True
        node = above
    return False


def _unpacked(
    node: ast.expr, source: ScriptSource, holders: dict[ast.AST, ast.AST], places: dict[int, ScriptArgument]
) -> bool:
    """Whether it is ``_, data, out = sys.argv`` or ``data, out = sys.argv[1:]``, whose names are the arguments'."""
    above: ast.AST | None = holders.get(node)
    first = 0
    if isinstance(above, ast.Subscript) and ast.unparse(above.slice) in ("1:", "1::"):
        first, above = 1, holders.get(above)
    if not isinstance(above, ast.Assign) or not isinstance(above.targets[0], ast.Tuple | ast.List):
        return False
    targets = above.targets[0].elts
    if not all(isinstance(one, ast.Name) for one in targets):
        return False
    for number, one in enumerate(targets, start=first):
        if number:
            places[number] = ScriptArgument("", dotted_name(one), required=True, place=source.place(node))
    return True
