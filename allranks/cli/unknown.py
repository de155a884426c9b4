"""An option that no verb has: mostly an input of the pipeline, written as other tools would have it."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.cli import target
from allranks.cli.text import name_suggestion
from allranks.errors import AllranksError
from allranks.local.settings import input_names


def unknown_option(option: str, given: Sequence[str], options: Sequence[str], message: str) -> tuple[str, str]:
    """The message and the hint for an option that ``run`` or ``submit`` does not have.

    Args:
        option: as written, without a value: ``--epochs``.
        given: all arguments of the verb.
        options: those that it has.
        message: argparse's, which names all that was not understood.
    """
    named = _target(given)
    name = option.lstrip("-").replace("-", "_")
    inputs = _inputs(named)
    if name in inputs:
        return f"{option} is an input of {named} and no option.", f"Write {_assigned(name, option, given)}."
    if close := name_suggestion(option, options, cutoff=0.8):
        return f"{message}{close}.", ""
    if close := _nearest(name, inputs):
        return f"{message} (did you mean {_assigned(close, option, given)}?).", ""
    return f"{message}.", "An input is given as NAME=VALUE."


def _target(given: Sequence[str]) -> str:
    """The first argument that can be a target."""
    return next((one for one in given if not one.startswith("-") and "=" not in one), "")


def _inputs(named: str) -> list[str]:
    try:
        return input_names(target.load_target(named)) if named else []
    except AllranksError:
        return []


def _nearest(name: str, inputs: Sequence[str]) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, inputs, n=1, cutoff=0.7)), "")


def _assigned(name: str, option: str, given: Sequence[str]) -> str:
    """``epochs=5``, with the value that followed the option, if one did."""
    at = next(index for index, one in enumerate(given) if one.partition("=")[0] == option)
    value = given[at].partition("=")[2]
    if not value and at + 1 < len(given) and not given[at + 1].startswith("--"):
        value = given[at + 1]
    return f"{name}={value or 'VALUE'}"
