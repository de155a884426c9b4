"""All that is read of a script for a component: its arguments, by whichever library it takes them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from allranks.errors import UsageError
from allranks.script.arguments import SEVERAL, SWITCH, FoundArguments, ScriptArgument, help_text, plain_default
from allranks.script.read_annotations import read_annotations
from allranks.script.read_argparse import read_argparse
from allranks.script.read_click import read_click
from allranks.script.sources import ScriptSource, imported_names

HELP_SECONDS = 60.0
_UNKNOWN = {"fire": "python-fire", "hydra": "Hydra", "tyro": "tyro", "absl": "absl.flags", "docopt": "docopt"}
_OPTION = re.compile(r"^ {1,4}(?P<flags>-\S.*?)(?:  +(?P<help>\S.*))?$")
_DEFAULT = re.compile(r"\[?\(?default: (?P<value>[^)\]]*)[)\]]")


def read_arguments(sources: Sequence[ScriptSource]) -> FoundArguments:
    """Read the arguments of a script, the first of its sources; nothing of it is imported."""
    found = FoundArguments()
    main = sources[0]
    packages = {name.partition(".")[0]: node for name, node in imported_names(main.tree)}
    if "click" in packages:
        read_click(main, found)
    read_annotations(main, sources, found)
    read_argparse(sources, found)
    for package, title in _UNKNOWN.items():
        if package in packages:
            place = main.place(packages[package])
            found.unread.append(
                f"{place}: arguments of {title} are not read; write them into the command, or try --by-help."
            )
    found.description = found.description or help_text((ast.get_docstring(main.tree) or "").partition("\n\n")[0])
    return found


def read_by_help(script: Path, folder: Path) -> FoundArguments:
    """Run the script with ``--help`` and read what it prints, as argparse, click and their like do.

    Raises:
        UsageError: it does not end well, or not within a minute.
    """
    command = [sys.executable, str(script), "--help"]
    hint = "Without --by-help its text is read, and nothing is run."
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=HELP_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{script.name} --help has not ended after {HELP_SECONDS:g} s.", hint) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise UsageError(f"{script.name} --help ended with exit code {done.returncode}: {last}", hint)
    return _parsed_help(done.stdout, script.name)


def _parsed_help(text: str, name: str) -> FoundArguments:
    found = FoundArguments()
    usage = text.partition("\n\n")[0]
    lines = text.splitlines()
    for index, line in enumerate(lines):
        match = _OPTION.match(line.replace("│", " ").rstrip())
        if match is None or "--help" in match["flags"]:
            continue
        words = match["help"] or ""
        for more in lines[index + 1 :]:
            if _OPTION.match(more) or not more.startswith(" " * 8):
                break
            words += " " + more.strip()
        _add_line(match["flags"], words, usage, f"{name} --help", found)
    if not found.arguments:
        found.unread.append(f"{name} --help: there is no option in it that can be read.")
    return found


def _add_line(flags: str, words: str, usage: str, place: str, found: FoundArguments) -> None:
    parts = [one.strip() for one in flags.split(",")]
    long = next((one for one in parts if one.startswith("--")), parts[0])
    flag, _, meta = long.replace("=", " ").partition(" ")
    choices = re.search(r"\{([^}]*)\}", flags)
    default = _DEFAULT.search(words)
    value = plain_default(_number(default["value"].strip())) if default and default["value"] != "None" else None
    clean = help_text(_DEFAULT.sub("", words))
    if not meta and not choices:
        found.add(
            ScriptArgument(
                flag, flag.lstrip("-").replace("-", "_"), "boolean", False, help=clean, form=SWITCH, place=place
            )
        )
        return
    kind = "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"
    listed = tuple(choices[1].split(",")) if choices else ()
    is_required = bool(re.search(rf"(?<!\[){re.escape(flag)} ", usage)) and f"[{flag}" not in usage
    form = SEVERAL if "..." in meta else "value"
    if listed or form == SEVERAL:
        kind, value = "string", None if value is None else str(value)
    found.add(
        ScriptArgument(
            flag, flag.lstrip("-").replace("-", "_"), kind, value, listed, is_required, clean, form, place=place
        )
    )


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
