"""The words that complete a command line that is being typed; never a message, whatever has been typed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import catalogue
from allranks.cli.run_list import SORT_KEYS, STATUSES, RunIndex
from allranks.local.folders import DEFAULT_HOME, RunFolder, RunsHome

if TYPE_CHECKING:
    from allranks.cli.main import VerbParser

_ENDINGS = (".yaml", ".yml", ".py", ".ipynb")
_MOST = 500  # that a shell is given
_PLAIN = re.compile(r"[\w@%+=:,./~^-]+")
"""What a shell takes as it stands. Words go into the command line as they are, where a file called ``$(…)`` would be
run and one with a space be two; without a word of ours the shell completes files itself, and quotes them."""


def completed_words(typed: Sequence[str]) -> list[str]:
    """The words that may stand where the last one does, all beginning like it; a part ends with ``=``, ``/`` or ``:``.

    Args:
        typed: the words after ``allranks``, the last one being completed and perhaps empty.
    """
    *before, last = typed or [""]
    found: list[str] = []
    with suppress(Exception):  # somebody is typing: a file that cannot be read is no matter now
        words = (word for word in _words(_joined(before), last) if word.startswith(last))
        found = sorted({word for word in words if _PLAIN.fullmatch(word)})
    return found[:_MOST]


def _joined(words: Sequence[str]) -> list[str]:
    """The words as the shell will pass them: bash gives NAME = VALUE as three."""
    joined: list[str] = []
    for word in words:
        if joined and (word in ("=", ":") or joined[-1].endswith(("=", ":"))):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _words(before: Sequence[str], last: str) -> Iterator[str]:
    from allranks.cli.main import VERBS, VerbParser, load_verb

    if not before:
        yield from (*VERBS, "--version", "--help")
        return
    verb, *words = before
    parser = VerbParser(prog=f"allranks {verb}")
    load_verb(verb).add_arguments(parser)
    while parser.commands:
        chosen = next((word for word in words if word in parser.commands), None)
        if chosen is None:
            break
        words = words[words.index(chosen) + 1 :]
        verb, parser = f"{verb} {chosen}", parser.commands[chosen]
    option = _option_waiting(parser, words)
    if option is not None:
        yield from _values_of(option, words, last)
        if option.nargs != "?":
            return
    if last.startswith("-"):
        yield from (name for name in parser.option_actions if name.startswith("--"))
        return
    yield from parser.commands
    yield from _positional(verb, parser, words, last)


def _option_waiting(parser: VerbParser, words: Sequence[str]) -> argparse.Action | None:
    """The option whose value is being typed."""
    if not words or not words[-1].startswith("--"):
        return None
    option = parser.option_actions.get(words[-1])
    return option if option is not None and option.nargs != 0 else None


def _values_of(option: argparse.Action, words: Sequence[str], last: str) -> Iterable[str]:
    target = _target(words)
    by_option: Mapping[str, Callable[[], Iterable[str]]] = {
        "--resume": _run_ids,
        "--status": lambda: _listed(last, STATUSES),
        "--sort": _sort_keys,
        "--steps": lambda: _listed(last, _step_names(target)),
        "--logs": lambda: _listed(last, ["all", "none", *_step_names(target)]),
        "--scale": lambda: (f"{name}=" for name in _step_names(target)),
        "--python": lambda: (f"{name}=" for name in _step_names(target)),
        "--environment": lambda: _environments(target, last),
    }
    name = next((one for one in option.option_strings if one in by_option), "")
    if name:
        return by_option[name]()
    return map(str, option.choices) if option.choices else _files(last)


def _listed(last: str, words: Iterable[str]) -> list[str]:
    """Words of a list with commas."""
    head, comma, _ = last.rpartition(",")
    return [f"{head}{comma}{word}" for word in words]


def _environments(target: str, last: str) -> Iterable[str]:
    step, equals, _ = last.partition("=")
    names = catalogue.ENVIRONMENTS if equals else _step_names(target)
    return (f"{step}={name}" if equals else f"{name}=" for name in names)


def _positional(verb: str, parser: VerbParser, words: Sequence[str], last: str) -> Iterator[str]:
    wanted = {action.dest for action in parser._get_positional_actions()}  # noqa: SLF001 argparse has no other way
    plain = [word for word in words if not word.startswith("-")]
    if verb.startswith("runs"):
        yield from _run_words(wanted, plain)
    elif "values" in wanted and (target := _target(words)):
        yield from _inputs(target, last)
    elif wanted & {"target", "targets", "name", "names", "component"}:
        yield from (*catalogue.PIPELINES, *catalogue.COMPONENTS)
        yield from _files(last)
    else:
        places = parser._get_positional_actions()  # noqa: SLF001 likewise
        yield from (str(choice) for action in places for choice in action.choices or ())


def _run_words(wanted: set[str], plain: Sequence[str]) -> Iterator[str]:
    """Run ids, or the steps of the run that was named."""
    if plain and "step" in wanted:
        yield from _steps_of(RunsHome(Path(DEFAULT_HOME).resolve()).find(plain[0]))
    elif wanted & {"run", "runs"}:
        yield from _run_ids()


def _run_ids() -> Iterator[str]:
    runs = RunsHome(Path(DEFAULT_HOME).resolve()).all_runs()
    yield from ("latest", *(run.id for run in reversed(runs))) if runs else ()


def _sort_keys() -> Iterable[str]:
    return (*SORT_KEYS, *RunIndex(RunsHome(Path(DEFAULT_HOME).resolve())).metrics())


def _steps_of(run: RunFolder) -> Iterator[str]:
    yield from (path.name for path in (run.path / "steps").iterdir())


def _target(words: Sequence[str]) -> str:
    """What of the words is a pipeline or a component."""
    known = {*catalogue.PIPELINES, *catalogue.COMPONENTS}
    return next((word for word in words if word in known or (word.endswith(_ENDINGS) and Path(word).is_file())), "")


def _inputs(target: str, last: str) -> Iterator[str]:
    """``NAME=``, and behind it the values of which one is to be chosen, or files."""
    from allranks.cli.show_document import bound_ranges
    from allranks.cli.target import load_target

    pipeline = load_target(target)
    name, equals, value = last.partition("=")
    if not equals:
        yield from (f"{one}=" for one in pipeline.inputs)
        return
    port = {**pipeline.inputs, **bound_ranges(pipeline)}.get(name)
    if port is not None and port.enum:
        yield from (f"{name}={choice}" for choice in port.enum)
    elif port is not None and port.is_data:
        yield from (f"{name}={path}" for path in _files(value, endings=()))


def _step_names(target: str) -> Iterable[str]:
    from allranks.cli.target import load_target

    return load_target(target).steps if target else ()


def _files(last: str, endings: Sequence[str] = _ENDINGS) -> Iterator[str]:
    """Folders, and the files that a target can be; all files without endings."""
    folder = last.rpartition("/")[0]
    head = f"{folder}/" if "/" in last else ""
    for path in sorted(Path(head or ".").iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield f"{head}{path.name}/"
        elif path.is_file() and (not endings or path.suffix in endings):
            yield f"{head}{path.name}"
