"""``allranks env``: the environments that steps run in, on this machine."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Self

from packaging.requirements import Requirement
from rich.console import Console

from allranks import catalogue
from allranks.cli import text
from allranks.errors import UnknownNameError
from allranks.local import environments
from allranks.local.folders import DEFAULT_HOME, RunsHome
from allranks.local.requirements import unmet_requirements

HELP = "list, build and check the environments that steps run in"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    shown = commands.add_parser("list", help="every environment, and what would run its steps here")
    build = commands.add_parser("build", help="build some into .allranks/environments; what is built already is kept")
    build.add_argument("names", metavar="NAME", nargs="+")
    check = commands.add_parser("check", help="say what an environment lacks here; exit with 1 if it cannot be used")
    check.add_argument("name", metavar="NAME")
    for command in (shown, build, check):
        command.add_argument("--runs-dir", type=Path, default=Path(DEFAULT_HOME), metavar="DIR")
        command.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(runs_dir=Path(DEFAULT_HOME), json=False)


def run(args: argparse.Namespace) -> int:
    """Do what the command says."""
    if args.command == "build":
        return _build(list(dict.fromkeys(_name(name) for name in args.names)), args.runs_dir, as_json=args.json)
    if args.command == "check":
        state = _environment_state(_name(args.name), args.runs_dir)
        text.print_output(state if args.json else _sentence(state))
        return 0 if state["usable"] else 1
    states = [_environment_state(name, args.runs_dir) for name in catalogue.ENVIRONMENTS]
    if args.json:
        text.print_output({"environments": states})
    else:
        print(text.aligned_rows([[state["name"], _sentence(state, briefly=True)] for state in states]))
        if not all(state["usable"] for state in states):
            print("\n`allranks env build NAME` builds one here, `allranks env check NAME` says what it lacks.")
    return 0


def _build(names: list[str], home: Path, *, as_json: bool) -> int:
    """Build environments one after another; the first that fails ends it, and what was built before stays.

    Raises:
        CannotRunHereError: one could not be built.
    """
    RunsHome(home).prepare()
    for name in names:
        state = _environment_state(name, home)
        if not (state["built"] and state["usable"]):
            with _BuildPhases(name) as phases:
                environments.build_environment(home, name, phases.tell)
    states = [_environment_state(name, home) for name in names]
    lines = [_sentence(state) if len(states) == 1 else f"{state['name']}: {_sentence(state)}" for state in states]
    text.print_output({"environments": states} if as_json else "\n".join(lines))
    return 0 if all(state["usable"] for state in states) else 1


class _BuildPhases:
    """Shows on standard error how a build gets on: a line for each phase that is done, a spinner on a terminal."""

    def __init__(self, name: str) -> None:
        self._name, self._phase, self._since = name, "", 0.0
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("")

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is None:
            self._finish()
        self._status.stop()

    def tell(self, phase: str) -> None:
        """A phase begins, and so the one before has ended."""
        self._finish()
        self._phase, self._since = phase, time.monotonic()
        self._status.update(f"{self._name}: {phase}")

    def _finish(self) -> None:
        if self._phase:
            took = text.duration_words(time.monotonic() - self._since)
            self._console.print(f"{self._name}: {self._phase} ({took})", markup=False, soft_wrap=True)


def _environment_state(name: str, home: Path) -> dict[str, Any]:
    """What would run the steps of an environment: itself if it is built, else the current interpreter if it can."""
    requirements = environments.environment_source(name) / "requirements.txt"
    python = environments.built_interpreter(home, name)
    lacking = unmet_requirements(requirements, environments.package_folder(python) if python else None)
    return {
        "name": name,
        "built": python is not None,
        "python": str(python) if python else None,
        "usable": not lacking,
        "lacking": lacking,
    }


def _name(name: str) -> str:
    short = name.removeprefix("allranks-")
    if short not in catalogue.ENVIRONMENTS:
        close = text.name_suggestion(short, catalogue.ENVIRONMENTS)
        raise UnknownNameError(
            f"{name!r} is no environment{close}.", f"Environments: {', '.join(catalogue.ENVIRONMENTS)}."
        )
    return short


def _sentence(state: dict[str, Any], *, briefly: bool = False) -> str:
    """What is there and what lacks; ``briefly`` without versions and without the next command."""
    if state["built"] and state["usable"]:
        return f"built: {state['python']}"
    if state["usable"]:
        return "not built; the current Python has all it asks for"
    what = "built, and lacks" if state["built"] else "not built, and the current Python lacks"
    if briefly:
        return f"{what} {', '.join(Requirement(each.partition(' (')[0]).name for each in state['lacking'])}"
    return f"{what} {', '.join(state['lacking'])}: allranks env build {state['name']}"
