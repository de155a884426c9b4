"""The arguments of a script by what it prints for ``--help``: for what its text alone does not tell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from allranks.errors import UsageError
from allranks.script.arguments import PAIR, SEVERAL, SWITCH, FoundArguments, ScriptArgument, help_text, plain_default
from allranks.script.subcommands import Subcommand, chosen_subcommand

HELP_SECONDS = 60.0
_OF_EVERY_SCRIPT = ("--help", "--version", "--install-completion", "--show-completion")
_PLAIN_TEXT = {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "NO_COLOR": "1", "TYPER_USE_RICH": "0"}
_OPTION = re.compile(r"^ {1,4}(?P<flags>-\S.*?)(?:  +(?P<help>\S.*))?$")
_DEFAULT = re.compile(r"\[?\(?default: (?P<value>[^)\]]*)[)\]]")


def read_by_help(script: Path, folder: Path, asked: Subcommand = ()) -> FoundArguments:
    """Run the script with ``--help`` and read what it prints, as argparse, click and their like do.

    Raises:
        UsageError: it does not end well, or not within a minute; it has subcommands, and which is meant is not said.
    """
    found = FoundArguments(asked=asked)
    while True:
        text = _printed_help(script, folder, found.subcommand)
        _parse_help(text, script.name, found)
        level, known = len(found.subcommand), _listed_commands(text)
        if not known:
            break
        found.subcommand += chosen_subcommand(asked[level : level + 1], [(name,) for name in known], script.name)
    if asked[len(found.subcommand) :]:
        raise UsageError(f"{script.name} --help tells of no subcommand {' '.join(asked)!r}.", "Leave out --subcommand.")
    if not found.arguments:
        found.unread.append(f"{script.name} --help: there is no option in it that can be read.")
    return found


def _printed_help(script: Path, folder: Path, subcommand: Subcommand) -> str:
    command = [sys.executable, str(script), *subcommand, "--help"]
    shown = " ".join([script.name, *subcommand, "--help"])
    hint = "Without --by-help its text is read, and nothing is run."
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | _PLAIN_TEXT,
            capture_output=True,
            text=True,
            check=False,
            timeout=HELP_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{shown} has not ended after {HELP_SECONDS:g} s.", hint) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise UsageError(f"{shown} ended with exit code {done.returncode}: {last}", hint)
    return done.stdout


def _listed_commands(text: str) -> list[str]:
    """The subcommands that a help names: ``{train,test} ...`` of argparse, or the section of click and typer."""
    braces = re.search(r"\{([^{}]+)\}\s*\.\.\.", text.partition("\n\n")[0])
    if braces:
        return [one.strip() for one in braces[1].split(",")]
    section = re.search(r"^Commands:\n((?: .*\n?)*)", text, re.MULTILINE)
    return re.findall(r"^ {1,3}([\w-]+)(?:  |\s*$)", section[1], re.MULTILINE) if section else []


def _parse_help(text: str, name: str, found: FoundArguments) -> None:
    usage = " ".join(text.partition("\n\n")[0].split())
    lines = text.splitlines()
    _add_positionals(text, usage, name, found)
    for index, line in enumerate(lines):
        match = _OPTION.match(line.rstrip())
        if match is None or any(one in match["flags"] for one in _OF_EVERY_SCRIPT):
            continue
        words = match["help"] or ""
        for more in lines[index + 1 :]:
            if _OPTION.match(more) or not more.startswith(" " * 8):
                break
            words += " " + more.strip()
        _add_line(match["flags"], words, usage, f"{name} --help", found)


def _add_positionals(text: str, usage: str, name: str, found: FoundArguments) -> None:
    """Those of argparse's section, or else the words in capitals behind ``[OPTIONS]`` of click's usage."""
    section = re.search(r"^positional arguments:\n((?: .*\n?)*)", text, re.MULTILINE)
    if section:
        given = re.findall(r"^  (\w[\w-]*)(?: {2,}(\S.*))?$", section[1], re.MULTILINE)
        named = [(word, words, f"[{word}" not in usage) for word, words in given]
    else:
        behind = usage.partition("[OPTIONS]")[2].split()
        named = [(one.strip("[]{}<>.").lower(), "", not one.startswith("[")) for one in behind]
        named = [one for one in named if one[0] not in ("command", "args", "")]
    for word, words, is_required in named:
        found.add(
            ScriptArgument(
                "",
                word.replace("-", "_"),
                required=is_required,
                help=help_text(words),
                place=f"{name} --help",
                level=len(found.subcommand),
            )
        )


def _add_line(flags: str, words: str, usage: str, place: str, found: FoundArguments) -> None:
    """Add the option of one line, ``-e, --epochs INTEGER  passes [default: 3]``."""
    parts = [one.strip() for one in flags.replace(" / ", ", ").split(",")]
    long = next((one for one in parts if one.startswith("--")), parts[0])
    flag, _, meta = long.replace("=", " ").partition(" ")
    off = next((one for one in parts if one == f"--no-{flag.lstrip('-')}"), "")
    choices = re.search(r"[\[{]([\w.-]+(?:[,| ][\w.-]+)+)[\]}]", flags)
    default = _DEFAULT.search(words)
    value = plain_default(_number(default["value"].strip())) if default and default["value"] != "None" else None
    common: dict[str, Any] = {
        "help": help_text(_DEFAULT.sub("", words)),
        "place": place,
        "level": len(found.subcommand),
    }
    name = flag.lstrip("-").replace("-", "_")
    if off:
        is_on = {"true": True, "false": False, flag.lstrip("-"): True, off.lstrip("-"): False}.get(str(value).lower())
        found.add(ScriptArgument(flag, name, "boolean", is_on, **common, form=PAIR, off=off))
        return
    if not meta and not choices:
        found.add(ScriptArgument(flag, name, "boolean", False, **common, form=SWITCH))
        return
    kind = "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"
    listed = tuple(re.split("[,| ]", choices[1])) if choices else ()
    is_required = bool(re.search(rf"(?<!\[){re.escape(flag)} ", usage)) and f"[{flag}" not in usage
    is_required = is_required or "[required]" in words
    form = SEVERAL if "..." in meta else "value"
    if listed or form == SEVERAL:
        kind, value = "string", None if value is None else str(value)
    found.add(ScriptArgument(flag, name, kind, value, listed, is_required, **common, form=form))


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
