"""All that is read of a script for a component: its arguments, by whichever library it takes them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from allranks.errors import UsageError
from allranks.script.arguments import FoundArguments, help_text
from allranks.script.read_absl import read_absl
from allranks.script.read_argparse import read_argparse
from allranks.script.read_argv import read_argv
from allranks.script.read_click import read_click
from allranks.script.read_dataclasses import read_dataclasses
from allranks.script.read_functions import read_fire, read_jsonargparse
from allranks.script.read_hydra import read_hydra
from allranks.script.read_lightning import is_lightning_cli, read_lightning
from allranks.script.read_typer import read_typer
from allranks.script.sources import ScriptSource, imported_names
from allranks.script.subcommands import Subcommand
from allranks.script.typed_arguments import TypedArguments

_UNREAD = {"tyro": "tyro", "docopt": "docopt", "simple_parsing": "simple-parsing", "tap": "Tap"}


def read_arguments(
    sources: Sequence[ScriptSource], asked: Subcommand = (), *, on_ranks: bool = False
) -> FoundArguments:
    """Read the arguments of a script, the first of its sources; nothing of it is imported.

    ``asked`` is the subcommand that the user wants started, ``on_ranks`` whether PyTorch's launch starts the script.

    Raises:
        UsageError: the script has subcommands and which one is meant is not said, or it has none of that name.
    """
    found = FoundArguments(asked=asked)
    main = sources[0]
    if is_lightning_cli(sources):
        read_lightning(sources, TypedArguments(sources, found), on_ranks=on_ranks)
    else:
        _read_by_packages(sources, found)
        read_argparse(sources, found)
        takes_none = not found.arguments and not any("ArgumentParser" in source.text for source in sources)
        if takes_none and not found.unread:
            read_argv(main, found)
    if asked and not found.subcommand:
        raise UsageError(
            f"{main.path.name} has no subcommands that can be read.", "Leave out --subcommand, or try --by-help."
        )
    found.description = found.description or help_text((ast.get_docstring(main.tree) or "").partition("\n\n")[0])
    return found


def _read_by_packages(sources: Sequence[ScriptSource], found: FoundArguments) -> None:
    """Read what the packages that a script imports make arguments of."""
    main = sources[0]
    packages = {name.partition(".")[0]: node for name, node in imported_names(main.tree)}
    typed = TypedArguments(sources, found)
    if "click" in packages:
        read_click(main, found)
    if "typer" in packages:
        read_typer(main, typed)
    if "jsonargparse" in packages:
        read_jsonargparse(main, typed)
    if "fire" in packages:
        read_fire(main, typed)
    if "hydra" in packages:
        read_hydra(main, found)
    if any(name.partition(".")[0] == "absl" for source in sources for name, _ in imported_names(source.tree)):
        read_absl(sources, found)
    read_dataclasses(main, typed)
    for package, title in _UNREAD.items():
        if package in packages:
            found.unread.append(
                f"{main.place(packages[package])}: arguments of {title} are not read; write them into the command,"
                " or try --by-help."
            )
