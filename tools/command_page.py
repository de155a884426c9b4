"""The page of the command line, written from its parsers."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping

from tools.pages import MADE, markdown_table


def command_line_page(verbs: Mapping[str, argparse.ArgumentParser]) -> str:
    """The page of the command line: each verb and its commands with their arguments, as ``--help`` has them."""
    listed = markdown_table(
        ("", ""), ((f"[`{name}`](#allranks-{name})", verb.description or "") for name, verb in verbs.items())
    )
    parts = [
        "# The command line",
        MADE.format("the parsers in allranks/cli"),
        "Exit codes: 0 all succeeded, 1 a step failed, 2 what was asked for is wrong, 130 after Ctrl-C.",
        listed,
        *(part for verb in verbs.values() for part in _verb_parts(verb, 2)),
    ]
    return "\n\n".join(parts) + "\n"


def _verb_parts(parser: argparse.ArgumentParser, level: int, above: Collection[str] = ()) -> Iterator[str]:
    """The heading, the sentence and the arguments of a verb, then what commands below it have besides."""
    yield f"{'#' * level} {parser.prog}"
    yield f"{_sentence(parser.description or '')}."
    actions = [one for one in parser._actions if one.help != argparse.SUPPRESS and one.dest != "help"]  # noqa: SLF001 argparse has no other way
    commands = {name: below for one in actions if isinstance(one.choices, dict) for name, below in one.choices.items()}
    found = {_argument(one): _explained(one, parser) for one in actions if not isinstance(one.choices, dict)}
    if rows := [row for row in found.items() if row[0] not in above]:
        yield markdown_table(("argument", ""), rows)
    for below in commands.values():
        yield from _verb_parts(below, level + 1, found)


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = "" if action.nargs == 0 else metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    names = ", ".join(f"{name} {value}".strip() for name in action.option_strings) or value
    return f"`{names}`"


def _explained(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help of an argument, with what argparse puts into it."""
    values = {**vars(action), "prog": parser.prog}
    return _sentence((action.help or "") % values)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
