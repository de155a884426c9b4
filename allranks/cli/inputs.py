"""Arguments that several verbs take: a target, values of its inputs, the scale of its steps, a workspace."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.azure.client import Workspace

TARGET_CHOICES = "a name from `allranks list`, a component or pipeline YAML, its folder, or FILE.py:FUNCTION"
TAKES_INPUTS = "takes_inputs"
"""The default that a parser has if an unknown option may be meant for an input."""
SCRIPT_ARGUMENTS = "arguments"
"""The default that a parser has if what stands after ``--`` is for a script; the same is what it is called then."""

_Value = TypeVar("_Value")
_SCALE = re.compile(r"(?:(?P<step>[\w.\-]+)=)?(?P<nodes>\d+)[xX](?P<processes>\d+)")


def add_input_arguments(parser: argparse.ArgumentParser, *, may_lack_target: bool = False) -> None:
    """Declare ``TARGET``, ``NAME=VALUE`` and ``--scale``."""
    parser.add_argument("target", metavar="TARGET", nargs="?" if may_lack_target else None, help=TARGET_CHOICES)
    parser.add_argument("values", metavar="NAME=VALUE", nargs="*", help="a pipeline input, group.name, or step.input")
    add_repeated(parser, "--scale", "[STEP=]NxP", "N nodes with P processes each; without STEP= of the only step")
    parser.set_defaults(**{TAKES_INPUTS: True})


def add_map_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--map`` of a verb that reads components and runs none."""
    registered = "the YAML of a component that is registered in Azure, such as azureml:theirs:1=./theirs.yaml"
    add_repeated(parser, "--map", "REFERENCE=PATH", registered)


def add_repeated(parser: argparse._ActionsContainer, option: str, metavar: str, explanation: str) -> None:
    """Declare an option that may be given several times; without it the list is empty."""
    parser.add_argument(option, metavar=metavar, action="append", default=[], help=explanation)


def add_workspace_arguments(parser: argparse.ArgumentParser, default: Any = None) -> None:
    """Declare ``--subscription``, ``--resource-group`` and ``--workspace``; variables and config.json stand in.

    The default is ``argparse.SUPPRESS`` for a command whose verb takes the same options.
    """
    group = parser.add_argument_group(
        "workspace", "default: AZUREML_ARM_SUBSCRIPTION, _RESOURCEGROUP and _WORKSPACE_NAME, or else config.json"
    )
    group.add_argument("--subscription", default=default, metavar="ID", help="the subscription of the workspace")
    group.add_argument("--resource-group", default=default, metavar="NAME", help="the resource group of the workspace")
    group.add_argument("--workspace", default=default, metavar="NAME", help="the workspace")


def workspace_of(args: argparse.Namespace) -> Workspace:
    """The workspace that the options, variables or config.json name; raises as ``find_workspace``."""
    from allranks.azure.client import find_workspace

    return find_workspace(args.subscription, args.resource_group, args.workspace)


def parse_value(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` as its two parts; raises UsageError for anything else."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        if _SCALE.fullmatch(text):
            raise UsageError(f"{text!r} is a scale, and no value of an input.", f"Write --scale {text}.")
        raise UsageError(f"{text!r} is not NAME=VALUE.", "For example: epochs=5, or train.epochs=5.")
    return name, value


def parse_each(option: str, parse: Callable[[str], tuple[str, _Value]], texts: Iterable[str]) -> dict[str, _Value]:
    """What an option that may be repeated was given, by name; raises UsageError for a name that has two values.

    Args:
        option: as it is typed; empty for ``NAME=VALUE``.
        parse: makes a name and its value of a text.
        texts: all that it was given.
    """
    found: dict[str, _Value] = {}
    for text in texts:
        name, value = parse(text)
        if name in found and found[name] != value:
            twice = " and ".join(one for one in texts if parse(one)[0] == name)
            raise UsageError(f"{option} {twice}: two values for the same.".lstrip(), "Leave one of them out.")
        found[name] = value
    return found


def parse_scale(text: str) -> tuple[str, tuple[int, int]]:
    """``STEP=NODESxPROCESSES`` as the step and its two counts; raises UsageError for anything else.

    Without ``STEP=`` the step is empty: the only one of the target.
    """
    match = _SCALE.fullmatch(text)
    if match is None:
        message = f"--scale {text!r} is not NODESxPROCESSES, nor STEP=NODESxPROCESSES."
        raise UsageError(message, "For example: --scale 2x4, or where several steps have ranks --scale train=2x4.")
    return match["step"] or "", (int(match["nodes"]), int(match["processes"]))
