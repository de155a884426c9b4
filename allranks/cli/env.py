"""``allranks env``: the environments that steps run in, on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from allranks import catalogue
from allranks.cli import text
from allranks.cli.build_phases import BuildPhases, build_environments
from allranks.cli.env_targets import target_environments
from allranks.cli.inputs import add_repeated
from allranks.errors import UnknownNameError, UsageError
from allranks.local.environments import library as environments
from allranks.local.environments.building import package_folder
from allranks.local.environments.removal import remove_environment
from allranks.local.environments.step_environment import StepEnvironment, built_environments, dropped_lines
from allranks.local.folders import DEFAULT_HOME, RunsHome
from allranks.local.requirements import unmet_requirements
from allranks.redaction import redact, redact_document
from allranks.wording import with_count

HELP = "list, build, check and remove the environments that steps run in"
_TARGET = "a name of ours; a pipeline or component, for what its steps need; an environment's YAML; a name of Azure's"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    shown = commands.add_parser("list", help="every environment, and what would run its steps here")
    build = commands.add_parser("build", help="build some into .allranks/environments; what is built already is kept")
    build.add_argument("names", metavar="TARGET", nargs="+", help=_TARGET)
    without = "leave a package out, such as one that cannot be fetched; runs then take what was built so"
    add_repeated(build, "--without", "PACKAGE", without)
    check = commands.add_parser("check", help="say what an environment lacks here; exit with 1 if it cannot be used")
    check.add_argument("name", metavar="TARGET", help=_TARGET)
    remove = commands.add_parser("remove", help="remove what was built; the next run that needs it builds it anew")
    remove.add_argument("names", metavar="NAME", nargs="*", help="as `env list` shows it")
    remove.add_argument("--all", action="store_true", help="all that were built")
    for command in (build, check):
        add_repeated(
            command, "--map", "REFERENCE=PATH", "the YAML of an environment that is named azureml:NAME:VERSION"
        )
    for command in (shown, build, check, remove):
        command.add_argument("--runs-dir", type=Path, default=Path(DEFAULT_HOME), metavar="DIR")
        command.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(runs_dir=Path(DEFAULT_HOME), json=False)


def run(args: argparse.Namespace) -> int:
    """Do what the command says."""
    if args.command == "build":
        return _build(args)
    if args.command == "check":
        return _check(args)
    if args.command == "remove":
        return _remove(args)
    states = [_environment_state(name, args.runs_dir) for name in catalogue.ENVIRONMENTS]
    built = [
        {**stamp, "name": folder.name, "folder": str(folder)} for folder, stamp in built_environments(args.runs_dir)
    ]
    if args.json:
        text.print_output(redact_document({"environments": states, "built_for_steps": built}))
        return 0
    print(text.aligned_rows([[state["name"], _sentence(state, briefly=True)] for state in states]))
    if built:
        print("\nbuilt for steps:")
        print(text.aligned_rows([[one["name"], _built_sentence(one)] for one in built]))
    if not all(state["usable"] for state in states):
        print("\n`allranks env build NAME` builds one here, `allranks env check NAME` says what it lacks.")
    return 0


def _build(args: argparse.Namespace) -> int:
    """Build environments one after another; the first that fails ends it, and what was built before stays.

    Raises:
        CannotRunHereError: one could not be built.
    """
    home: Path = args.runs_dir
    ours, others, targets = _needed(list(dict.fromkeys(args.names)), home, args.map)
    without: list[str] = args.without
    for package in without:
        if not others:
            raise UsageError(f"--without {package}: the library's environments are built as they are.")
        if not any(_has(one, package) for one in others):
            dropped_lines(others[0].recipe, [package])  # refuses, and says what there is
    RunsHome(home).prepare()
    for name in ours:
        state = _environment_state(name, home)
        if not (state["built"] and state["usable"]):
            with BuildPhases(name, environments.build_log(home, name)) as phases:
                environments.build_environment(home, name, phases.tell)
    for one in others:
        build_environments([one], [package for package in without if _has(one, package)], targets[one.folder])
    states = [_environment_state(name, home) for name in ours] + [_step_state(one) for one in others]
    lines = [_sentence(state) if len(states) == 1 else f"{state['name']}: {_sentence(state)}" for state in states]
    text.print_output({"environments": states} if args.json else "\n".join(lines))
    return 0 if all(state["usable"] for state in states) else 1


def _check(args: argparse.Namespace) -> int:
    ours, others, _ = _needed([args.name], args.runs_dir, args.map)
    states = [_environment_state(name, args.runs_dir) for name in ours] + [_step_state(one) for one in others]
    if len(states) == 1:
        text.print_output(states[0] if args.json else _sentence(states[0]))
    elif args.json:
        text.print_output({"environments": states})
    else:
        lines = [f"{state['name']}: {_sentence(state)}" for state in states]
        print("\n".join(lines) or "its steps ask for nothing that can be built here")
    return 0 if all(state["usable"] for state in states) else 1


def _remove(args: argparse.Namespace) -> int:
    folders = sorted((args.runs_dir.absolute() / "environments").glob("[!.]*/"))
    names = [folder.name for folder in folders if folder.is_dir()]
    if bool(args.names) == args.all:
        raise UsageError("nothing to remove: give NAME or --all.", f"Built here: {', '.join(names) or 'none'}.")
    for name in args.names:
        if name not in names:
            close = text.name_suggestion(name, names)
            raise UnknownNameError(f"{name!r} is not built here{close}.", f"Built here: {', '.join(names) or 'none'}.")
    removed = names if args.all else list(dict.fromkeys(args.names))
    for name in removed:
        remove_environment(args.runs_dir, name)
    text.print_output({"removed": removed} if args.json else f"removed: {', '.join(removed) or 'nothing'}")
    return 0


def _needed(
    targets: Sequence[str], home: Path, mapped: Sequence[str]
) -> tuple[list[str], list[StepEnvironment], dict[Path, str]]:
    """The environments of ours that targets mean, and those of other people's, with the target that means a folder."""
    ours: list[str] = []
    others: dict[Path, StepEnvironment] = {}
    meant: dict[Path, str] = {}
    for target in targets:
        short = target.removeprefix("allranks-")
        if short in catalogue.ENVIRONMENTS:
            ours.append(short)
            continue
        names, found = target_environments(target, home, mapped)
        ours += names
        others |= {one.folder: one for one in found}
        meant |= {one.folder: target for one in found}
    return list(dict.fromkeys(ours)), list(others.values()), meant


def _has(environment: StepEnvironment, package: str) -> bool:
    try:
        return bool(dropped_lines(environment.recipe, [package]))
    except UsageError:
        return False


def _environment_state(name: str, home: Path) -> dict[str, Any]:
    """What would run the steps of an environment: itself if it is built, else the current interpreter if it can."""
    requirements = environments.environment_source(name) / "requirements.txt"
    python = environments.built_interpreter(home, name)
    lacking = unmet_requirements(requirements, package_folder(python) if python else None)
    return {
        "name": name,
        "built": python is not None,
        "python": str(python) if python else None,
        "usable": not lacking,
        "lacking": lacking,
    }


def _step_state(one: StepEnvironment) -> dict[str, Any]:
    """What there is of an environment that is not ours; until it is built nothing runs its steps."""
    lacking = [f"Python {one.version}", *map(redact, (*one.recipe.conda, *one.recipe.pip))]
    return {
        "name": one.folder.name,
        "built": one.is_built,
        "python": str(one.python) if one.is_built else None,
        "usable": one.is_built,
        "lacking": [] if one.is_built else lacking,
        "without": list(map(redact, one.left_out)),
        "unmet": list(one.unmet),
    }


def _sentence(state: dict[str, Any], *, briefly: bool = False) -> str:
    """What is there and what lacks; ``briefly`` without versions and without the next command."""
    besides = f"; pip cannot give {', '.join(state['unmet'])}" if state.get("unmet") else ""
    if state["built"] and state["usable"]:
        without = f", without {', '.join(state['without'])}" if state.get("without") else ""
        return f"built: {state['python']}{without}{besides}"
    if "without" in state:
        return f"not built; a run that needs it does that: {', '.join(state['lacking'])}{besides}"
    if state["usable"]:
        return "not built; the current Python has all it asks for"
    what = "built, and lacks" if state["built"] else "not built, and the current Python lacks"
    if briefly:
        return f"{what} {', '.join(Requirement(each.partition(' (')[0]).name for each in state['lacking'])}"
    return f"{what} {', '.join(state['lacking'])}: allranks env build {state['name']}"


def _built_sentence(stamp: dict[str, Any]) -> str:
    without = f", without {redact(', '.join(stamp['without']))}" if stamp.get("without") else ""
    return f"Python {stamp.get('python')}, {with_count(len(stamp.get('packages', [])), 'package')}{without}"
