"""Settings of LightningCLI: its configuration file, and what its model, data and Trainer take."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.script.arguments import FoundArguments, ScriptArgument
from allranks.script.sources import ScriptSource, dotted_name, function_parameters, imported_names
from allranks.script.typed_arguments import AS_LIST, TypedArguments, TypedParameter, TypedStyle

_STYLE = TypedStyle(several=AS_LIST)
_SUBCOMMANDS = ("fit", "validate", "test", "predict")
_TRAINER = (
    ("max_epochs", "integer", "passes over the data"),
    ("max_steps", "integer", "optimizer steps, in place of epochs"),
    ("precision", "string", "such as bf16-mixed"),
    ("accelerator", "string", "gpu, cpu or auto"),
    ("strategy", "string", "such as ddp or fsdp"),
)
_OUTPUT = ScriptArgument(
    "--trainer.default_root_dir", "output_dir", "path", help="where logs and checkpoints are written"
)
_CONFIG = ScriptArgument("--config", "config", help="a file of settings in this folder, as `--print_config` writes one")
_RANKS = (
    "--trainer.num_nodes $AZUREML_NODE_COUNT",
    "--trainer.devices $((WORLD_SIZE / AZUREML_NODE_COUNT))",
)
"""Lightning learns the number of ranks from its Trainer's arguments, not from the launch."""


def is_lightning_cli(sources: Sequence[ScriptSource]) -> bool:
    """Whether a script, the first of its sources, takes its arguments by LightningCLI."""
    return next(_calls(sources), None) is not None


def read_lightning(sources: Sequence[ScriptSource], typed: TypedArguments, *, on_ranks: bool) -> None:
    """Add what LightningCLI takes; ``on_ranks`` says whether the launch starts several.

    No input has a default, since an argument wins over the configuration file: what has no value is left to the script.

    Raises:
        UsageError: the subcommand that was asked for is none of Lightning's.
    """
    found = typed.found
    call, source, arguments = next(_calls(sources))
    place = source.place(call)
    runs = not (isinstance(arguments.get("run"), ast.Constant) and typed.constant(arguments["run"]) is False)
    level = 1 if runs else 0
    if runs:
        found.asked = found.asked or _SUBCOMMANDS[:1]
        found.choose([(one,) for one in _SUBCOMMANDS], sources[0].path.name)
    found.add(replace(_CONFIG, place=place, level=level))
    before = FoundArguments()
    for group, given in (("model", arguments.get("model_class")), ("data", arguments.get("datamodule_class"))):
        name = dotted_name(given).rpartition(".")[2] if given is not None else ""
        if name in typed.classes:
            inner = TypedArguments(sources, before)
            _add_class(group, name, inner, level)
        elif given is not None or group == "model":
            words = f"the {group} is chosen when the script runs, or not in this folder; set its arguments in a config."
            found.unread.append(f"{place}: {words}")
    linked = set(_linked(sources))
    for one in before.arguments:
        if one.flag.removeprefix("--") not in linked:
            found.add(_left_to_script(one))
    found.unread += [line for line in before.unread if "its default is computed" not in line]
    for field, kind, words in _TRAINER:
        found.add(ScriptArgument(f"--trainer.{field}", field, kind, help=words, place=place, level=level))
    found.add(replace(_OUTPUT, place=place, level=level))
    found.fixed = _RANKS if on_ranks else ()


def _left_to_script(one: ScriptArgument) -> ScriptArgument:
    shown = "" if one.default is None else str(one.default).lower() if one.type == "boolean" else str(one.default)
    words = ", ".join(filter(None, (one.help, f"{shown} if not given" if shown else "")))
    return replace(one, default=None, required=False, help=words)


def _add_class(group: str, name: str, typed: TypedArguments, level: int) -> None:
    node, source = typed.classes[name]
    init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if init is None:
        return
    for parameter, annotation, default, place in function_parameters(init):
        if parameter != "self":
            flag, port = f"--{group}.{parameter}", f"{group}_{parameter}"
            typed.add(TypedParameter(flag, port, annotation, default, source, place, level=level), _STYLE)


def _calls(sources: Sequence[ScriptSource]) -> Iterator[tuple[ast.Call, ScriptSource, Mapping[str, ast.expr]]]:
    """Each making of a LightningCLI or of a class of the script's that is one, with its arguments by name."""
    names = {"LightningCLI"}
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and any(dotted_name(b).endswith("LightningCLI") for b in node.bases):
                names.add(node.name)
    for source in sources:
        if not any(
            name.partition(".")[0] in ("lightning", "pytorch_lightning") for name, _ in imported_names(source.tree)
        ):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] in names:
                given: dict[str, Any] = dict(zip(("model_class", "datamodule_class"), node.args, strict=False))
                yield node, source, given | {one.arg: one.value for one in node.keywords if one.arg}


def _linked(sources: Sequence[ScriptSource]) -> Iterator[str]:
    """Arguments that are computed of others, and so are none of the command line."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] == "link_arguments":
                target = node.args[1] if len(node.args) > 1 else None
                if isinstance(target, ast.Constant) and isinstance(target.value, str):
                    yield target.value
