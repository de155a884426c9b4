"""Arguments made of annotations: ``epochs: int = 3`` of a function or a class, whichever library reads them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allranks.script.arguments import (
    PAIR,
    SEVERAL,
    TRUTH,
    VALUE,
    Constant,
    FoundArguments,
    ScriptArgument,
    UnreadError,
    constant_names,
    constant_value,
    literal_type_of,
    plain_default,
    spaced_text,
)
from allranks.script.sources import ScriptSource, dotted_name, function_parameters

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
_PATHS = frozenset(["Path", "PurePath", "PathLike", "Path_fr", "Path_dw", "Path_drw", "FileText"])
_LISTS = frozenset(["List", "list", "Sequence", "Tuple", "tuple"])

UNREAD = object()
"""What an expression gives that only the running script could evaluate."""

SPACED, REPEATED, AS_LIST = "spaced", "repeated", "as list"
"""How several values are given: ``--n 1 2``; ``--n 1 --n 2``; ``--n '[1, 2]'``."""


@dataclass(frozen=True, slots=True)
class TypedStyle:
    """How a library takes what annotations say.

    Attributes:
        truth: ``TRUTH`` or ``PAIR``.
        on: of a pair what stands for true, by the name of the flag; ``off``: for false.
        several: ``SPACED``, ``REPEATED`` or ``AS_LIST``.
        by_default: whether a parameter without annotation has the type of its default.
    """

    truth: str = TRUTH
    on: str = "--{}"
    off: str = "--no-{}"
    several: str = SPACED
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class TypedParameter:
    """A parameter or a field as it is written; ``flag`` is empty for a positional one, ``off`` for the style's."""

    flag: str
    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    source: ScriptSource
    node: ast.AST
    text: str = ""
    choices: tuple[Constant, ...] = ()
    off: str = ""
    bounds: tuple[Any, Any] = (None, None)
    level: int = 0


class TypedArguments:
    """The functions and classes of some sources, of whose parameters arguments are made."""

    def __init__(self, sources: Sequence[ScriptSource], found: FoundArguments) -> None:
        self.found = found
        self._names = constant_names(sources)
        nodes = [(node, source) for source in sources for node in ast.walk(source.tree)]
        self.classes = {node.name: (node, source) for node, source in nodes if isinstance(node, ast.ClassDef)}
        modules = [(node, source) for source in reversed(sources) for node in source.tree.body]
        self.functions = {node.name: (node, source) for node, source in modules if isinstance(node, ast.FunctionDef)}

    def constant(self, node: ast.expr) -> Any:
        """The value of an expression, or ``UNREAD``."""
        try:
            return constant_value(node, self._names)
        except UnreadError:
            return UNREAD

    def say(self, source: ScriptSource, node: ast.AST, words: str) -> None:
        """Note what could not be read."""
        self.found.unread.append(f"{source.place(node)}: {words}")

    def add_function(self, node: ast.FunctionDef, source: ScriptSource, style: TypedStyle, *, level: int = 0) -> None:
        """Add the parameters of a function; all have flags."""
        for name, annotation, default, place in function_parameters(node):
            if name not in ("self", "cls"):
                self.add(TypedParameter(f"--{name}", name, annotation, default, source, place, level=level), style)

    def add(self, one: TypedParameter, style: TypedStyle) -> None:
        """Add an argument, or say why it cannot be one."""
        value = self._default(one)
        kind, listed, many = self._kind(one.annotation)
        if one.annotation is None and style.by_default:
            kind, many = ("string", True) if isinstance(value, list) else (literal_type_of(value), False)
        if kind == "":
            words = ast.unparse(one.annotation) if one.annotation is not None else "no annotation"
            self.say(one.source, one.node, f"{one.name}: {words} cannot be an input; the script's default holds.")
            return
        argument = ScriptArgument(
            one.flag,
            one.name,
            kind,
            choices=one.choices or listed,
            required=one.default is None,
            help=one.text,
            place=one.source.place(one.node),
            level=one.level,
        )
        if kind == "boolean":
            form = style.truth if one.flag else TRUTH
            argument = replace(argument, default=bool(value), form=form, required=False)
            if form == PAIR:
                name = one.flag.lstrip("-")
                argument = replace(argument, flag=style.on.format(name), off=one.off or style.off.format(name))
        elif many:
            argument = self._several(argument, value, one, style)
        else:
            plain = plain_default(value)
            plain = float(plain) if kind == "number" and isinstance(plain, int) else plain
            plain = str(plain) if kind in ("string", "path") and plain is not None else plain
            argument = replace(argument, default=plain, min=one.bounds[0], max=one.bounds[1])
        self.found.add(argument)

    def _default(self, one: TypedParameter) -> Any:
        if one.default is None:
            return None
        value = self.constant(one.default)
        if value is UNREAD and dotted_name(one.default).partition(".")[0] in self.classes:
            value = self._member(one.default)
        if value is UNREAD:
            words = f"its default is computed, and holds where the input has no value: {ast.unparse(one.default)[:80]}"
            self.say(one.source, one.node, f"{one.name}: {words}")
            return None
        return value

    def _several(self, argument: ScriptArgument, value: Any, one: TypedParameter, style: TypedStyle) -> ScriptArgument:
        if style.several == AS_LIST:
            text = plain_default(json.dumps(value)) if isinstance(value, list) else None
            return replace(argument, type="string", default=text, form=VALUE)
        is_repeated = style.several == REPEATED and bool(one.flag)
        if is_repeated:
            self.say(one.source, one.node, f"{one.flag} is given once for each value; the input gives it one.")
        default = spaced_text(value) if isinstance(value, list) else None
        return replace(argument, type="string", default=default, form=VALUE if is_repeated else SEVERAL)

    def _kind(self, annotation: ast.expr | None) -> tuple[str, tuple[Constant, ...], bool]:
        """The type of an annotation, empty if an input cannot have it; its choices; whether it is of several values."""
        if annotation is None:
            return "string", (), False
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                return self._kind(ast.parse(annotation.value, mode="eval").body)
            except SyntaxError:  # words for people
                return "", (), False
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            return self._kind(_not_none([annotation.left, annotation.right]))
        if isinstance(annotation, ast.Subscript):
            outer = dotted_name(annotation.value).rpartition(".")[2]
            inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            if outer in ("Optional", "Union", "Annotated"):
                return self._kind(_not_none(inner))
            if outer == "Literal":
                return "string", tuple(one.value for one in inner if isinstance(one, ast.Constant)), False  # type: ignore[misc]
            return (self._kind(inner[0])[0], (), True) if outer in _LISTS else ("", (), False)
        name = dotted_name(annotation).rpartition(".")[2]
        if name in self.classes:
            values = tuple(self._enum_values(name))
            return ("string" if values else ""), values, False
        if name in _LISTS:
            return "string", (), True
        return ("path" if name in _PATHS else _TYPES.get(name, "")), (), False

    def _enum_values(self, name: str) -> Iterator[Constant]:
        node, _ = self.classes[name]
        if any(dotted_name(base).endswith("Enum") for base in node.bases):
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
                    yield str(item.value.value)

    def _member(self, node: ast.expr) -> Any:
        """The value of ``Color.red``."""
        enum, _, member = dotted_name(node).removesuffix(".value").partition(".")
        for item in self.classes[enum][0].body:
            if isinstance(item, ast.Assign) and dotted_name(item.targets[0]) == member:
                return self.constant(item.value)
        return UNREAD


def _not_none(kinds: Sequence[ast.expr]) -> ast.expr:
    return next(one for one in kinds if not (isinstance(one, ast.Constant) and one.value is None))
