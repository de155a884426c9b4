"""The fields of the dataclasses that HfArgumentParser of transformers is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from allranks.script.arguments import (
    SEVERAL,
    TRUTH,
    Constant,
    FoundArguments,
    ScriptArgument,
    UnreadError,
    constant_names,
    constant_value,
    help_text,
    plain_default,
    spaced_text,
)
from allranks.script.sources import ScriptSource, dotted_name

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
_PATHS = frozenset(["Path", "PurePath", "PathLike"])
_LISTS = frozenset(["List", "list", "Sequence", "Tuple", "tuple"])
_UNREAD = object()  # what an expression gives that only the running script could evaluate

_TRAINER = (
    ("output_dir", "string", "where checkpoints and the model are written"),
    ("num_train_epochs", "number", "passes over the data"),
    ("max_steps", "integer", "optimizer steps, in place of epochs"),
    ("per_device_train_batch_size", "integer", "batch of each rank"),
    ("gradient_accumulation_steps", "integer", "batches to an optimizer step"),
    ("learning_rate", "number", "the optimizer's learning rate"),
    ("weight_decay", "number", "the optimizer's weight decay"),
    ("warmup_steps", "integer", "steps over which the learning rate rises"),
    ("logging_steps", "integer", "steps between two lines of the log"),
    ("save_steps", "integer", "steps between two checkpoints"),
    ("seed", "integer", "seed of all random numbers"),
)
"""Of the hundred fields of transformers' TrainingArguments those that are changed most: docs of its Trainer."""


def read_dataclasses(sources: Sequence[ScriptSource], found: FoundArguments) -> None:
    """Add the fields of each class that an ``HfArgumentParser`` of a script, the first source, is made of."""
    source, reader = sources[0], _FieldReader(sources, found)
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        if not dotted_name(call.func).endswith("HfArgumentParser") or not call.args:
            continue
        given = call.args[0]
        for one in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
            name = dotted_name(one).rpartition(".")[2]
            if name in reader.classes:
                reader.add_class(name, set())
            elif name.endswith("TrainingArguments"):
                reader.add_trainer(source, one, name)
            else:
                words = f"the class {ast.unparse(one)} is not in this folder; its fields are not read."
                found.unread.append(f"{source.place(one)}: {words}")


class _FieldReader:
    """Makes arguments of the fields of the classes in some sources."""

    def __init__(self, sources: Sequence[ScriptSource], found: FoundArguments) -> None:
        self._found = found
        self._names = constant_names(sources)
        nodes = [(node, source) for source in sources for node in ast.walk(source.tree)]
        self.classes = {node.name: (node, source) for node, source in nodes if isinstance(node, ast.ClassDef)}

    def add_trainer(self, source: ScriptSource, node: ast.AST, name: str) -> None:
        """Add the fields of transformers' own TrainingArguments that are changed most."""
        place = source.place(node)
        for field, kind, words in _TRAINER:
            self._found.add(ScriptArgument(f"--{field}", field, kind, help=words, place=place))
        more = f"of {name} the usual {len(_TRAINER)} are inputs; write others into the command."
        self._found.unread.append(f"{place}: {more}")

    def add_class(self, name: str, seen: set[str]) -> None:
        """Add the fields of a class, after those of its bases."""
        node, source = self.classes[name]
        for base in node.bases:
            above = dotted_name(base).rpartition(".")[2]
            if above in self.classes and above not in seen:
                self.add_class(above, seen | {name})
            elif above.endswith("TrainingArguments"):
                self.add_trainer(source, base, above)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self._add_field(item.target.id, item, source)

    def _add_field(self, name: str, item: ast.AnnAssign, source: ScriptSource) -> None:
        default, keywords = item.value, {}
        if isinstance(default, ast.Call) and dotted_name(default.func).rpartition(".")[2] == "field":
            keywords = {one.arg: one.value for one in default.keywords if one.arg}
            default = keywords.get("default", keywords.get("default_factory"))
            if isinstance(default, ast.Lambda):
                default = default.body
        said: dict[str, Any] = {}
        metadata = keywords.get("metadata")
        if isinstance(metadata, ast.Dict):
            for key, value in zip(metadata.keys, metadata.values, strict=True):
                said[str(getattr(key, "value", ""))] = self._constant(value)
        place, value = source.place(item), self._default(name, default, source.place(item))
        kind, listed, many = self._kind(item.annotation)
        if kind == "":
            words = f"{ast.unparse(item.annotation)} cannot be an input; the script's default holds."
            self._found.unread.append(f"{place}: {name}: {words}")
            return
        choices = said.get("choices")
        argument = ScriptArgument(
            f"--{name}",
            name,
            kind,
            choices=(tuple(choices) if isinstance(choices, list) else ()) or listed,
            required=default is None,
            help=help_text(said.get("help")),
            place=place,
        )
        self._found.add(_with_default(argument, value, is_several=many))

    def _constant(self, node: ast.expr) -> Any:
        try:
            return constant_value(node, self._names)
        except UnreadError:
            return _UNREAD

    def _default(self, name: str, node: ast.expr | None, place: str) -> Any:
        if node is None:
            return None
        value = self._constant(node)
        if value is _UNREAD and dotted_name(node).partition(".")[0] in self.classes:
            value = self._member(node)
        if value is _UNREAD:
            words = f"its default is computed, and holds where the input has no value: {ast.unparse(node)[:80]}"
            self._found.unread.append(f"{place}: {name}: {words}")
            return None
        return value

    def _kind(self, annotation: ast.expr) -> tuple[str, tuple[Constant, ...], bool]:
        """The type of an annotation, empty if an input cannot have it; its choices; whether it is of several values."""
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
                return self._constant(item.value)
        return _UNREAD


def _with_default(argument: ScriptArgument, value: Any, *, is_several: bool) -> ScriptArgument:
    if argument.type == "boolean":
        return replace(argument, default=bool(value), form=TRUTH, required=False)
    if is_several:
        default = spaced_text(value) if isinstance(value, list) else None
        return replace(argument, type="string", default=default, form=SEVERAL)
    plain = plain_default(value)
    plain = float(plain) if argument.type == "number" and isinstance(plain, int) else plain
    plain = str(plain) if argument.type in ("string", "path") and plain is not None else plain
    return replace(argument, default=plain)


def _not_none(kinds: Sequence[ast.expr]) -> ast.expr:
    return next(one for one in kinds if not (isinstance(one, ast.Constant) and one.value is None))
