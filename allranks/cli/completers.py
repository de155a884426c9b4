"""Complete a command line that is being typed: argcomplete asks for the names, inputs, runs and steps there are."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter

from allranks import catalogue
from allranks.cli.run_list import SORT_KEYS, STATUSES, RunIndex
from allranks.local.folders import DEFAULT_HOME, RunsHome

_Completer = Callable[[str, Namespace], Iterable[str]]


def complete_line() -> None:
    """Print the words that complete the line in ``COMP_LINE``, and exit; only the verb in it is imported."""
    from allranks.cli.main import VERBS, VerbParser, load_verb

    typed = os.environ.get("COMP_LINE", "").split()
    parser = VerbParser(prog="allranks")
    parser.add_argument("--version", action="store_true")
    verbs = parser.add_subparsers(parser_class=VerbParser)
    for verb in VERBS:
        below = verbs.add_parser(verb)
        if verb in typed[1:2]:
            load_verb(verb).add_arguments(below)
            _attach(below)
    argcomplete.autocomplete(parser, always_complete_options=False)


def _attach(parser: Any) -> None:
    """Give the arguments of a parser, and of those below it, what completes them."""
    for action in parser._actions:  # noqa: SLF001 argparse has no other way
        found = next((_COMPLETERS[name] for name in (*action.option_strings, action.dest) if name in _COMPLETERS), None)
        if found is not None:
            action.completer = _quietly(found)
    for below in parser.commands.values():
        _attach(below)


def _quietly(completer: _Completer) -> Callable[..., list[str]]:
    """Complete with nothing where a file cannot be read or a line is not whole yet."""

    def complete(prefix: str, parsed_args: Namespace, **_: object) -> list[str]:
        found: list[str] = []
        with suppress(Exception):
            found += completer(prefix, parsed_args)
        return found

    return complete


def _targets(prefix: str, _: Namespace) -> Iterator[str]:
    yield from (*catalogue.PIPELINES, *catalogue.COMPONENTS)
    yield from FilesCompleter((".yaml", ".yml", ".py", ".ipynb"))(prefix)


def _runs(_prefix: str, _: Namespace) -> Iterable[str]:
    runs = RunsHome(Path(DEFAULT_HOME).resolve()).all_runs()
    return ("latest", *(run.id for run in reversed(runs))) if runs else ()


def _steps_of_run(_prefix: str, parsed_args: Namespace) -> Iterable[str]:
    run = RunsHome(Path(DEFAULT_HOME).resolve()).find(parsed_args.run)
    return [path.name for path in (run.path / "steps").iterdir()]


def _inputs(prefix: str, parsed_args: Namespace) -> Iterator[str]:
    """``NAME=``, and behind it the values that are to choose from, or files."""
    from allranks.cli.show_document import bound_ranges
    from allranks.cli.target import load_target

    pipeline = load_target(parsed_args.target)
    name, equals, value = prefix.partition("=")
    if not equals:
        yield from (f"{one}=" for one in pipeline.inputs)
        return
    port = {**pipeline.inputs, **bound_ranges(pipeline)}.get(name)
    if port is not None and port.enum:
        yield from (f"{name}={choice}" for choice in port.enum)
    elif port is not None and port.is_data:
        yield from (f"{name}={path}" for path in FilesCompleter()(value))


def _step_names(parsed_args: Namespace) -> Iterable[str]:
    from allranks.cli.target import load_target

    target = getattr(parsed_args, "target", None)
    return load_target(target).steps if target else ()


def _of_steps(_prefix: str, parsed_args: Namespace) -> Iterable[str]:
    return [f"{name}=" for name in _step_names(parsed_args)]


def _environments(prefix: str, parsed_args: Namespace) -> Iterable[str]:
    step, equals, _value = prefix.partition("=")
    return [f"{step}={name}" for name in catalogue.ENVIRONMENTS] if equals else _of_steps(prefix, parsed_args)


def _listed(words: Callable[[Namespace], Iterable[str]]) -> _Completer:
    """Completes the last word of a list with commas."""

    def complete(prefix: str, parsed_args: Namespace) -> Iterable[str]:
        head, comma, _last = prefix.rpartition(",")
        return [f"{head}{comma}{word}" for word in words(parsed_args)]

    return complete


def _sort_keys(_prefix: str, _: Namespace) -> Iterable[str]:
    return (*SORT_KEYS, *RunIndex(RunsHome(Path(DEFAULT_HOME).resolve())).metrics())


_COMPLETERS: dict[str, _Completer] = {
    **dict.fromkeys(("target", "targets", "name", "names", "component"), _targets),
    **dict.fromkeys(("run", "runs", "--resume"), _runs),
    "values": _inputs,
    "step": _steps_of_run,
    "--status": _listed(lambda _: STATUSES),
    "--sort": _sort_keys,
    "--steps": _listed(_step_names),
    "--logs": _listed(lambda parsed_args: ("all", "none", *_step_names(parsed_args))),
    "--scale": _of_steps,
    "--python": _of_steps,
    "--environment": _environments,
}
"""By the option or the name of a positional argument, what completes it."""
