"""Arguments made of annotations: typer's and jsonargparse's functions, the dataclasses of HfArgumentParser."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from allranks.script.arguments import (
    PAIR,
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
from allranks.script.sources import (
    ScriptSource,
    dotted_name,
    function_parameters,
    has_decorator,
    imported_names,
)

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
_PATHS = frozenset(["Path", "PurePath", "PathLike", "Path_fr", "Path_dw", "Path_drw", "FileText"])
_NONE = object()

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


def read_annotations(source: ScriptSource, sources: Sequence[ScriptSource], found: FoundArguments) -> None:
    """Add what typer, jsonargparse's CLI and HfArgumentParser make arguments of."""
    packages = {name.partition(".")[0] for name, _ in imported_names(source.tree)}
    reader = _AnnotationReader(sources, found)
    if "typer" in packages:
        reader.read_typer(source)
    if "jsonargparse" in packages:
        reader.read_jsonargparse(source)
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        if dotted_name(call.func).endswith("HfArgumentParser") and call.args:
            reader.read_dataclasses(call, source)


class _AnnotationReader:
    """Reads the parameters of functions and the fields of classes of some sources."""

    def __init__(self, sources: Sequence[ScriptSource], found: FoundArguments) -> None:
        self._found = found
        self._names = constant_names(sources)
        nodes = [(node, source) for source in sources for node in ast.walk(source.tree)]
        self._classes = {node.name: (node, source) for node, source in nodes if isinstance(node, ast.ClassDef)}

    def read_typer(self, source: ScriptSource) -> None:
        """The one command: ``typer.run(main)``, or the function with ``@app.command()``."""
        functions = {node.name: node for node in source.tree.body if isinstance(node, ast.FunctionDef)}
        commands = [node for node in functions.values() if has_decorator(node, "command")]
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            if dotted_name(call.func) in ("typer.run", "run") and call.args and isinstance(call.args[0], ast.Name):
                commands += [functions[call.args[0].id]] if call.args[0].id in functions else []
        if len(commands) > 1:
            listed = ", ".join(node.name for node in commands)
            self._say(source, commands[1], f"there are several commands ({listed}); none of their options is read.")
            return
        for command in commands:
            self._found.description = self._found.description or help_text(
                (ast.get_docstring(command) or "").partition("\n\n")[0]
            )
            for name, annotation, default, node in function_parameters(command):
                self._typer_parameter(name, annotation, default, node, source)

    def read_jsonargparse(self, source: ScriptSource) -> None:
        """The function of ``CLI(main)`` or ``auto_cli(main)``; parameters without a default are positional."""
        functions = {node.name: node for node in source.tree.body if isinstance(node, ast.FunctionDef)}
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            if dotted_name(call.func).rpartition(".")[2] not in ("CLI", "auto_cli"):
                continue
            name = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
            name = name or (next(iter(functions)) if len(functions) == 1 and not call.args else "")
            if name not in functions:
                self._say(source, call, "what CLI is given is no function of this file; its arguments are not read.")
                continue
            self._found.description = self._found.description or help_text(
                (ast.get_docstring(functions[name]) or "").partition("\n\n")[0]
            )
            for parameter, annotation, default, node in function_parameters(functions[name]):
                flag = "" if default is None else f"--{parameter}"
                self._typed(flag, parameter, annotation, default, source, node, truth=TRUTH, as_list=True)

    def read_dataclasses(self, call: ast.Call, source: ScriptSource) -> None:
        """The fields of the dataclasses that HfArgumentParser is given."""
        given = call.args[0]
        for one in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
            name = dotted_name(one).rpartition(".")[2]
            if name in self._classes:
                self._class(name, set())
            elif name.endswith("TrainingArguments"):
                self._trainer(source, one, name)
            else:
                self._say(source, one, f"the class {ast.unparse(one)} is not in this folder; its fields are not read.")

    def _trainer(self, source: ScriptSource, node: ast.AST, name: str) -> None:
        place = source.place(node)
        for field, kind, words in _TRAINER:
            self._found.add(ScriptArgument(f"--{field}", field, kind, help=words, place=place))
        more = f"of {name} the usual {len(_TRAINER)} are inputs; write others into the command."
        self._say(source, node, more)

    def _class(self, name: str, seen: set[str]) -> None:
        node, source = self._classes[name]
        for base in node.bases:
            above = dotted_name(base).rpartition(".")[2]
            if above in self._classes and above not in seen:
                self._class(above, seen | {name})
            elif above.endswith("TrainingArguments"):
                self._trainer(source, base, above)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self._field(item.target.id, item, source)

    def _field(self, name: str, item: ast.AnnAssign, source: ScriptSource) -> None:
        default, keywords = item.value, {}
        if isinstance(default, ast.Call) and dotted_name(default.func).rpartition(".")[2] == "field":
            keywords = {one.arg: one.value for one in default.keywords if one.arg}
            default = keywords.get("default", keywords.get("default_factory"))
            if isinstance(default, ast.Lambda):
                default = default.body
        said: dict[str, Any] = {}
        if isinstance(keywords.get("metadata"), ast.Dict):
            metadata = keywords["metadata"]
            assert isinstance(metadata, ast.Dict)  # noqa: S101 as the line above says
            for key, value in zip(metadata.keys, metadata.values, strict=True):
                said[str(getattr(key, "value", ""))] = self._constant(value)
        text, choices = help_text(said.get("help")), said.get("choices")
        known = tuple(choices) if isinstance(choices, list) else ()
        self._typed(f"--{name}", name, item.annotation, default, source, item, truth=TRUTH, text=text, choices=known)

    def _typer_parameter(
        self, name: str, annotation: ast.expr | None, default: ast.expr | None, node: ast.AST, source: ScriptSource
    ) -> None:
        option: ast.Call | None = None
        if isinstance(annotation, ast.Subscript) and dotted_name(annotation.value).endswith("Annotated"):
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            annotation = parts[0]
            option = next((one for one in parts[1:] if isinstance(one, ast.Call)), None)
            words = list(option.args) if option else []
        elif isinstance(default, ast.Call) and dotted_name(default.func).rpartition(".")[2] in ("Option", "Argument"):
            option = default
            default = (
                option.args[0] if option.args else next((k.value for k in option.keywords if k.arg == "default"), None)
            )
            words = list(option.args[1:])
        else:
            words = []
        default = None if isinstance(default, ast.Constant) and default.value is Ellipsis else default
        is_positional = dotted_name(option.func).endswith("Argument") if option else default is None
        flags = [str(self._constant(one)) for one in words]
        long = next((one for one in flags if one.startswith("--")), f"--{name.replace('_', '-')}")
        flag, _, off = long.partition("/")
        keywords = {one.arg: self._constant(one.value) for one in option.keywords if one.arg} if option else {}
        text = help_text(keywords.get("help"))
        self._typed(
            "" if is_positional else flag.strip(),
            name,
            annotation,
            default,
            source,
            node,
            truth=PAIR,
            text=text,
            off=off.strip() or f"--no-{flag.strip().lstrip('-')}",
            bounds=(keywords.get("min"), keywords.get("max")),
        )

    def _typed(
        self,
        flag: str,
        name: str,
        annotation: ast.expr | None,
        default: ast.expr | None,
        source: ScriptSource,
        node: ast.AST,
        *,
        truth: str,
        text: str = "",
        choices: tuple[Constant, ...] = (),
        off: str = "",
        bounds: tuple[Any, Any] = (None, None),
        as_list: bool = False,
    ) -> None:
        kind, listed, many = self._kind(annotation)
        is_required = default is None
        value = self._constant(default) if default is not None else None
        if value is _NONE:
            enum = dotted_name(default).partition(".")[0] if default is not None else ""
            value = self._member(default) if enum in self._classes else _NONE
        if value is _NONE:
            words = ast.unparse(default)[:80] if default is not None else ""
            self._say(source, node, f"{name}: its default is computed, and holds where the input has no value: {words}")
            value = None
        if kind == "":
            words = ast.unparse(annotation) if annotation is not None else "no annotation"
            self._say(source, node, f"{name}: {words} cannot be an input; the script's default holds.")
            return
        argument = ScriptArgument(
            flag, name, kind, help=text, required=is_required, place=source.place(node), choices=choices or listed
        )
        if kind == "boolean":
            form = truth if flag else TRUTH
            argument = replace(
                argument, default=bool(value), form=form, off=off if form == PAIR else "", required=False
            )
        elif many:
            if truth == PAIR and flag:
                self._say(source, node, f"{flag} is given once for each value; the input gives it one.")
            default_text = spaced_text(value) if isinstance(value, list) else None
            form = SEVERAL if truth == TRUTH or not flag else "value"
            if as_list:  # jsonargparse takes a list as YAML writes it
                default_text, form = plain_default(json.dumps(value) if isinstance(value, list) else None), "value"
            argument = replace(argument, type="string", default=default_text, form=form)
        else:
            plain = plain_default(value)
            plain = float(plain) if kind == "number" and isinstance(plain, int) else plain
            plain = str(plain) if kind in ("string", "path") and plain is not None else plain
            argument = replace(argument, default=plain, min=bounds[0], max=bounds[1])
        self._found.add(argument)

    def _kind(self, annotation: ast.expr | None) -> tuple[str, tuple[Constant, ...], bool]:
        """The type of an annotation, empty if an input cannot have it; its choices; whether it is of several values."""
        if annotation is None:
            return "string", (), False
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            return self._kind(ast.parse(annotation.value, mode="eval").body)
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            parts = [annotation.left, annotation.right]
            kinds = [one for one in parts if not (isinstance(one, ast.Constant) and one.value is None)]
            return self._kind(kinds[0])
        if isinstance(annotation, ast.Subscript):
            outer = dotted_name(annotation.value).rpartition(".")[2]
            inner = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            if outer in ("Optional", "Union", "Annotated"):
                return self._kind(
                    next(one for one in inner if not (isinstance(one, ast.Constant) and one.value is None))
                )
            if outer == "Literal":
                return "string", tuple(one.value for one in inner if isinstance(one, ast.Constant)), False  # type: ignore[misc]
            if outer in ("List", "list", "Sequence", "Tuple", "tuple"):
                return self._kind(inner[0])[0], (), True
            return "", (), False
        name = dotted_name(annotation).rpartition(".")[2]
        if name in self._classes:
            values = tuple(self._enum_values(name))
            return ("string" if values else ""), values, False
        return ("path" if name in _PATHS else _TYPES.get(name, "")), (), False

    def _enum_values(self, name: str) -> Iterator[Constant]:
        node, _ = self._classes[name]
        if any(dotted_name(base).endswith("Enum") for base in node.bases):
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
                    yield str(item.value.value)

    def _member(self, node: ast.expr | None) -> Any:
        """The value of ``Color.red``."""
        enum, _, member = dotted_name(node).removesuffix(".value").partition(".") if node is not None else ("", "", "")
        for item in self._classes[enum][0].body:
            if isinstance(item, ast.Assign) and dotted_name(item.targets[0]) == member:
                return self._constant(item.value)
        return _NONE

    def _constant(self, node: ast.expr) -> Any:
        try:
            return constant_value(node, self._names)
        except UnreadError:
            return _NONE

    def _say(self, source: ScriptSource, node: ast.AST, words: str) -> None:
        self._found.unread.append(f"{source.place(node)}: {words}")
