"""Read a script's arguments from what it prints for ``--help``: the one road for all that is not read from the text."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from allranks.errors import UsageError
from allranks.script.arguments import (
    PAIR,
    SEVERAL,
    SWITCH,
    TRUTH,
    FoundArguments,
    ScriptArgument,
    help_text,
    plain_default,
)
from allranks.script.sources import ScriptSource
from allranks.script.subcommands import Subcommand, chosen_subcommand

HELP_SECONDS = 60.0
BY_HAND = "To write the component by hand, start from the files of `allranks init --template plain`."

_OF_EVERY_SCRIPT = ("--help", "--version", "--install-completion", "--show-completion", "--print_config")
_PLAIN_TEXT = {"COLUMNS": "200", "TERMINAL_WIDTH": "200", "NO_COLOR": "1", "TYPER_USE_RICH": "0"}
_OPTION = re.compile(r"^ {1,4}(?P<flags>-\S.*?)(?:  +(?P<help>\S.*))?$")
_DEFAULT = re.compile(r"\[?\(?default: (?P<value>\[[^\]]*\]|[^)\];]*)[^)\]]*[)\]]")
_TYPED = re.compile(
    r"\((?P<required>required, )?type: (?P<kind>.*?)(, default: (?P<value>.*?))?(, known subclasses.*)?\)$"
)
"""How jsonargparse and LightningCLI end the help of an argument."""

_KINDS = {"int": "integer", "integer": "integer", "float": "number"}
_ABSL = re.compile(r"^  --(?P<off>\[no\])?(?P<name>[\w-]+): ?(?:<(?P<choices>[^>]*)>: )?", re.MULTILINE)
_FIRE = "INFO: Showing help with the command"
_LAUNCHED = ("--trainer.num_nodes", "--trainer.devices")
_RANKS = (f"{_LAUNCHED[0]} $AZUREML_NODE_COUNT", f"{_LAUNCHED[1]} $((WORLD_SIZE / AZUREML_NODE_COUNT))")
"""LightningCLI learns the number of ranks from its Trainer's arguments, not from the launch."""


def help_needed(source: ScriptSource, node: ast.AST, what: str, script: str = "") -> UsageError:
    """Return the refusal to read arguments from a script's text, with both ways out."""
    how = f"Add --by-help: `{script or source.path.name} --help` is then run for at most {HELP_SECONDS:g} s and read."
    return UsageError(f"{source.place(node)}: {what} are not read from the text of a script.", f"{how} {BY_HAND}")


def read_by_help(script: Path, folder: Path, asked: Subcommand = (), *, on_ranks: bool = False) -> FoundArguments:
    """Run the script with ``--help`` and read what it prints, as argparse, click, Fire and their like do.

    ``on_ranks`` says whether PyTorch's launch starts the script.

    Raises:
        UsageError: it does not end well, or not within a minute; it has subcommands, and which is meant is not said.
    """
    found = FoundArguments()
    while True:
        text = _printed_help(script, folder, found.subcommand)
        _parse_help(text, script.name, found)
        level, known = len(found.subcommand), _listed_commands(text)
        if not known and text.startswith(_FIRE):  # Fire lists no methods of a class
            known = list(asked[level : level + 1])
        if not known:
            break
        found.subcommand += chosen_subcommand(asked[level : level + 1], [(name,) for name in known], script.name)
    if asked[len(found.subcommand) :]:
        raise UsageError(f"{script.name} --help tells of no subcommand {' '.join(asked)!r}.", "Leave out --subcommand.")
    if any(one.flag == _LAUNCHED[0] for one in found.arguments):
        _leave_to_lightning(found, on_ranks=on_ranks)
    if not found.arguments:
        found.unread.append(f"{script.name} --help: there is no option in it that can be read. {BY_HAND}")
    return found


def _leave_to_lightning(found: FoundArguments, *, on_ranks: bool) -> None:
    """Leave the number of ranks to the launch, and each default to LightningCLI: an argument wins over its config."""
    level = len(found.subcommand)
    kept = [one for one in found.arguments if one.flag not in _LAUNCHED and one.level == level]
    found.arguments = []
    for one in kept:
        is_output = one.flag == "--trainer.default_root_dir"
        name = "output_dir" if is_output else one.name.rstrip("_")
        found.add(replace(one, name=name, type="path" if is_output else one.type, default=None))
    found.fixed = _RANKS if on_ranks else ()


def _printed_help(script: Path, folder: Path, subcommand: Subcommand) -> str:
    command = [sys.executable, str(script), *subcommand, "--help"]
    shown = " ".join([script.name, *subcommand, "--help"])
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
        raise UsageError(f"{shown} has not ended after {HELP_SECONDS:g} s.", BY_HAND) from None
    if "Try --helpfull" in done.stdout:  # absl ends its help with exit code 1
        return _plain_absl(done.stdout)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise UsageError(f"{shown} ended with exit code {done.returncode}: {last}", BY_HAND)
    return done.stdout or done.stderr  # Fire prints its help as an error


def _plain_absl(text: str) -> str:
    """The help of absl as others print theirs."""

    def option(match: re.Match[str]) -> str:
        name, choices = match["name"], match["choices"]
        meta = f"[{choices}]" if choices else "VALUE"
        return f"  --{name} / --no{name}  " if match["off"] else f"  --{name} {meta}  "

    text = re.sub(r"^    \(default: '(.*)'\)$", r"        (default: \1)", text, flags=re.MULTILINE)
    return _ABSL.sub(option, text)


def _listed_commands(text: str) -> list[str]:
    """The subcommands that a help names: ``{train,test} ...`` of argparse, or the section of click, typer and Fire."""
    braces = re.search(r"\{([^{}]+)\}\s*\.\.\.", text.partition("\n\n")[0])
    if braces:
        return [one.strip() for one in braces[1].split(",")]
    section = re.search(r"^Commands:\n((?: .*\n?)*)", text, re.MULTILINE)
    if section:
        return re.findall(r"^ {1,3}([\w-]+)(?:  |\s*$)", section[1], re.MULTILINE)
    section = re.search(r"COMMAND is one of the following:\n((?: .*\n?|\n)*)", text)
    return re.findall(r"^ {5}([\w-]+)$", section[1], re.MULTILINE) if section else []


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
            words += " " + re.sub(r"^ *(Default|Type): (.*)", _fire_line, more).strip()
        _add_line(match["flags"], words.strip(), usage, f"{name} --help", found)


def _fire_line(match: re.Match[str]) -> str:
    return f"(default: {match[2]})" if match[1] == "Default" else ""


def _add_positionals(text: str, usage: str, name: str, found: FoundArguments) -> None:
    """Those of a section, or else the words in capitals behind ``[OPTIONS]`` of click's usage."""
    section = re.search(r"^(?:positional )?arguments:?\n((?: .*\n?)*)", text, re.MULTILINE | re.IGNORECASE)
    if section:
        given = re.findall(r"^ {2,4}(\w[\w-]*)(?: <\w+>)?(?: {2,}(\S.*))?$", section[1], re.MULTILINE)
        named = [(word, words, f"[{word}" not in usage) for word, words in given]
    else:
        behind = usage.partition("[OPTIONS]")[2].split()
        named = [(one.strip("[]{}<>."), "", not one.startswith("[")) for one in behind]
        named = [one for one in named if one[0].lower() not in ("command", "args", "")]
    for word, words, is_required in named:
        typed = _TYPED.search(words)
        found.add(
            ScriptArgument(
                "",
                (word.lower() if word.isupper() else word).replace("-", "_"),
                _KINDS.get(typed["kind"], "string") if typed else "string",
                required=is_required,
                help=help_text(_TYPED.sub("", words).replace("[required]", "")),
                place=f"{name} --help",
                level=len(found.subcommand),
            )
        )


def _add_line(flags: str, words: str, usage: str, place: str, found: FoundArguments) -> None:
    """Add the option of one line, ``-e, --epochs INTEGER  passes [default: 3]``."""
    parts = [one.strip() for one in flags.replace(" / ", ", ").split(",")]
    long = next((one for one in parts if one.startswith("--")), parts[0])
    flag, _, meta = long.replace("=", " ").partition(" ")
    if flag.endswith(".help"):  # jsonargparse's, for the choices of a class
        return
    off = next((one for one in parts if one in (f"--no-{flag.lstrip('-')}", f"--no{flag.lstrip('-')}")), "")
    choices = re.search(r"[\[{]([\w.-]+(?:[,| ][\w.-]+)+)[\]}]", flags.replace(",...]", "]"))
    typed = _TYPED.search(words)
    default = typed or _DEFAULT.search(words)
    text = (default["value"] or "").strip() if default else ""
    value = plain_default(_number(text)) if text not in ("None", "null") else None
    common: dict[str, Any] = {
        "help": help_text(_DEFAULT.sub("", _TYPED.sub("", words)).replace("[required]", "")),
        "place": place,
        "level": len(found.subcommand),
    }
    name = flag.lstrip("-").replace("-", "_")
    if off:
        is_on = {"true": True, "false": False, flag.lstrip("-"): True, off.lstrip("-"): False}.get(str(value).lower())
        found.add(ScriptArgument(flag, name, "boolean", is_on, **common, form=PAIR, off=off))
        return
    if "=" in long and value in ("True", "False"):  # Fire's: `--amp false` would be a text, and so true
        found.add(
            ScriptArgument(f"{flag}=True", name, "boolean", value == "True", **common, form=PAIR, off=f"{flag}=False")
        )
        return
    if choices and choices[1].startswith("true,false"):
        is_on = {"true": True, "false": False}.get(str(value).lower())
        found.add(ScriptArgument(flag, name, "boolean", is_on, **common, form=TRUTH))
        return
    if not meta and not choices:
        found.add(ScriptArgument(flag, name, "boolean", False, **common, form=SWITCH))
        return
    said = typed["kind"] if typed else meta.strip("<>").partition(" ")[0].lower()
    kind = "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"
    kind = _KINDS.get(said, kind)
    if kind != "string" and value is not None:
        value = None if isinstance(value, str) else float(value) if kind == "number" else int(value)
    listed = tuple(re.split("[,| ]", choices[1])) if choices else ()
    is_required = bool(re.search(rf"(?<!\[){re.escape(flag)} ", usage)) and f"[{flag}" not in usage
    is_required = is_required or "[required]" in words or bool(typed and typed["required"])
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
