"""Read a script's arguments from its text: those of argparse, HfArgumentParser and Hydra."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from allranks.script.arguments import FoundArguments, help_text
from allranks.script.read_argparse import read_argparse
from allranks.script.read_dataclasses import read_dataclasses
from allranks.script.read_help import BY_HAND, help_needed
from allranks.script.read_hydra import read_hydra
from allranks.script.sources import ScriptSource, dotted_name, imported_names

_BY_HELP = {
    "click": "click",
    "typer": "typer",
    "absl.app": "absl",
    "absl.flags": "absl",
    "fire": "Fire",
    "jsonargparse": "jsonargparse",
    "lightning.pytorch.cli": "LightningCLI",
    "pytorch_lightning.cli": "LightningCLI",
    "tyro": "tyro",
    "docopt": "docopt",
    "simple_parsing": "simple-parsing",
    "tap": "Tap",
}
"""Parsers whose calls are not read from the text, by the module that a script imports."""


def read_arguments(sources: Sequence[ScriptSource]) -> FoundArguments:
    """Read the arguments of a script, the first of its sources; nothing of it is imported.

    Raises:
        UsageError: the script has subcommands, or a parser that only its ``--help`` describes.
    """
    found = FoundArguments()
    main = sources[0]
    if any(name.partition(".")[0] == "hydra" for name, _ in imported_names(main.tree)):
        read_hydra(main, found)
    read_dataclasses(sources, found)
    read_argparse(sources, found)
    if not found.arguments and not found.unread:
        _refuse_other_parsers(main)
        _note_argv(main, found)
    found.description = found.description or help_text((ast.get_docstring(main.tree) or "").partition("\n\n")[0])
    return found


def _refuse_other_parsers(main: ScriptSource) -> None:
    for name, node in imported_names(main.tree):
        if name in _BY_HELP:
            raise help_needed(main, node, f"arguments of {_BY_HELP[name]}")


def _note_argv(main: ScriptSource, found: FoundArguments) -> None:
    is_bare = any(name == "sys.argv" for name, _ in imported_names(main.tree))
    for node in ast.walk(main.tree):
        name = dotted_name(node)
        if name == "sys.argv" or (is_bare and name == "argv"):
            found.unread.append(f"{main.place(node)}: arguments of sys.argv are not read. {BY_HAND}")
            return
