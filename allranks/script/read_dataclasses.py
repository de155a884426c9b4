"""The fields of the dataclasses that HfArgumentParser of transformers is given."""

from __future__ import annotations

import ast
from typing import Any

from allranks.script.arguments import ScriptArgument, help_text
from allranks.script.sources import ScriptSource, dotted_name
from allranks.script.typed_arguments import TypedArguments, TypedParameter, TypedStyle

_STYLE = TypedStyle()

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


def read_dataclasses(source: ScriptSource, typed: TypedArguments) -> None:
    """Add the fields of each class that an ``HfArgumentParser`` of a script is made of."""
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        if not dotted_name(call.func).endswith("HfArgumentParser") or not call.args:
            continue
        given = call.args[0]
        for one in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
            name = dotted_name(one).rpartition(".")[2]
            if name in typed.classes:
                _add_class(name, set(), typed)
            elif name.endswith("TrainingArguments"):
                _add_trainer(source, one, name, typed)
            else:
                words = f"the class {ast.unparse(one)} is not in this folder; its fields are not read."
                typed.say(source, one, words)


def _add_trainer(source: ScriptSource, node: ast.AST, name: str, typed: TypedArguments) -> None:
    place = source.place(node)
    for field, kind, words in _TRAINER:
        typed.found.add(ScriptArgument(f"--{field}", field, kind, help=words, place=place))
    more = f"of {name} the usual {len(_TRAINER)} are inputs; write others into the command."
    typed.say(source, node, more)


def _add_class(name: str, seen: set[str], typed: TypedArguments) -> None:
    node, source = typed.classes[name]
    for base in node.bases:
        above = dotted_name(base).rpartition(".")[2]
        if above in typed.classes and above not in seen:
            _add_class(above, seen | {name}, typed)
        elif above.endswith("TrainingArguments"):
            _add_trainer(source, base, above, typed)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            _add_field(item.target.id, item, source, typed)


def _add_field(name: str, item: ast.AnnAssign, source: ScriptSource, typed: TypedArguments) -> None:
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
            said[str(getattr(key, "value", ""))] = typed.constant(value)
    choices = said.get("choices")
    known = tuple(choices) if isinstance(choices, list) else ()
    text = help_text(said.get("help"))
    one = TypedParameter(f"--{name}", name, item.annotation, default, source, item, text=text, choices=known)
    typed.add(one, _STYLE)
