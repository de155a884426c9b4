"""One literal or path against the input that takes it: type, range, choices, and the quotes of the command."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeAlias

from allranks.errors import Problem
from allranks.spec.expressions import literal_text, single_quoted_inputs, single_reference
from allranks.spec.model import Component, Data, Input, Literal, Pipeline, Step
from allranks.spec.section import a_or_an, shown_value

Values: TypeAlias = Mapping[str, Literal | Data]
"""Values of inputs, by name."""


def check_value(declared: Input, value: Literal | Data, where: str = "") -> Literal | Data | Problem:
    """Type and check one value, whether it comes from YAML or from NAME=VALUE.

    Texts that are a number or a boolean count as one, as they do for Azure ML.

    Args:
        declared: the input; its type, ``min`` and ``max`` (inclusive) and ``enum`` are the rules.
        value: a literal, or the path of data; bindings have to be resolved before.
        where: the place that a Problem names.

    Returns:
        The value in the input's type (``Data`` for a path, as it was given), or a Problem that says the rule.
    """
    if declared.is_data:
        return _path(declared, value, where)
    if isinstance(value, Data):
        return Problem(f"'{value.path}' is a path, and the input takes {a_or_an(declared.type)}.", where)
    typed = _typed(declared.type, value)
    if typed is None:
        return Problem(f"{shown_value(value)} is not {a_or_an(declared.type)}{_rule(declared)}.", where)
    if isinstance(typed, (int, float)) and declared.type in ("integer", "number"):
        shown, rule = shown_value(typed), _rule(declared)
        if declared.min is not None and typed < declared.min:
            return Problem(f"{shown} is below the minimum of {_number(declared.min)}{rule}.", where)
        if declared.max is not None and typed > declared.max:
            return Problem(f"{shown} is above the maximum of {_number(declared.max)}{rule}.", where)
    if declared.enum and literal_text(typed) not in {str(choice) for choice in declared.enum}:
        return _no_choice(declared, value, where)
    return typed


def _path(declared: Input, value: Literal | Data, where: str) -> Data | Problem:
    if isinstance(value, Data):
        return value
    if not isinstance(value, str) or not value.strip():
        return Problem(f"{shown_value(value)} is not a path, and the input takes {a_or_an(declared.type)}.", where)
    return Data(value)


def _typed(type_: str, value: Literal) -> Literal | None:
    if type_ == "string":
        return literal_text(value)
    if type_ == "boolean":
        text = literal_text(value).strip().lower()
        return text == "true" if text in ("true", "false") else None
    if isinstance(value, bool):
        return None
    return _integer(value) if type_ == "integer" else _finite(value)


def sent_default(type_: str, value: Literal) -> Literal:
    """The default of a declared input as the SDK sends it, and the service fills it in.

    The SDK reads every default through a float: a number's 10 becomes 10.0, its 1e-3 0.001, a string's 1 becomes 1.0,
    and an integer keeps 53 bits. A value that somebody gives, on a step or to a job, is sent as it is written.

    Returns:
        ``value`` itself where its text stays the same, or where an input of ``type_`` cannot take it.
    """
    typed = _typed(type_, value)
    if typed is None:
        return value
    try:
        if type_ == "number":
            typed = float(typed)
        elif type_ == "integer":
            typed = int(float(typed))
        elif type_ == "string" and isinstance(value, int) and not isinstance(value, bool):
            typed = str(float(value))
    except OverflowError:
        return value
    return value if literal_text(typed) == literal_text(value) else typed


def default_values(document: Component | Pipeline) -> dict[str, Literal | Data]:
    """Return the inputs of a document that have a value of their own."""
    return {name: one.default for name, one in document.inputs.items() if one.default is not None}


def given_values(step: Step, known: Values) -> dict[str, Literal | Data]:
    """Return what a step gives to its component, as far as it is known before anything runs."""
    found = {name: resolved_value(value, known) for name, value in step.inputs.items()}
    return {name: value for name, value in found.items() if value is not None}


def resolved_value(value: Literal | Data | None, known: Values) -> Literal | Data | None:
    """Return a value or, for a binding to the pipeline's input, that one's; None where only the run knows it."""
    reference = single_reference(value.path if isinstance(value, Data) else value)
    if reference is None:
        return value
    return known.get(reference.name) if reference.scope == "parent.inputs" else None


def plain_number(value: object) -> object:
    """A value for people to read: a float that is whole without its ``.0``."""
    whole = isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15
    return int(value) if whole else value  # type: ignore[call-overload]


_WHOLE = re.compile(r"\s*[+-]?\d{1,300}\s*", re.ASCII)


def _integer(value: float | str) -> int | None:
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else _integral(_finite(value))
    return value if isinstance(value, int) else _integral(value)


def _integral(value: float | None) -> int | None:
    """Azure ML itself writes integers as 10.0 at times, so whole floats count."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None


def _finite(value: float | str) -> float | None:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)  # 3 stays 3, as it does when YAML reads it, and a long one keeps its digits
    if isinstance(value, str) and ("_" in value or not value.isascii()):  # Python reads 1_000, Azure ML does not
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _rule(declared: Input) -> str:
    """Write the range or the choices in brackets, where there are any."""
    if declared.enum:
        return f" (one of {_choices(declared)})"
    low, high = declared.min, declared.max
    if low is not None and high is not None:
        return f" ({_number(low)} to {_number(high)})"
    if low is not None:
        return f" (at least {_number(low)})"
    return f" (at most {_number(high)})" if high is not None else ""


def _number(value: float) -> str:
    return str(plain_number(value))


def _choices(declared: Input) -> str:
    return ", ".join(f"'{choice}'" for choice in declared.enum)


def _no_choice(declared: Input, value: Literal, where: str) -> Problem:
    choices = {str(choice) for choice in declared.enum}
    hint = ""
    if isinstance(value, bool) and str(value).lower() in choices:
        hint = f"Azure ML passes an unquoted {str(value).lower()} as '{value}'; write '{str(value).lower()}' in quotes."
    elif str(value).strip().lower() in {choice.lower() for choice in choices}:
        hint = "Upper and lower case count."
    return Problem(f"'{literal_text(value)}' is not one of {_choices(declared)}.", where, hint=hint)


def check_command_values(component: Component, values: Mapping[str, Literal | Data | None]) -> list[Problem]:
    """Find values that would end the single quotes in which the command puts them: a problem at ``inputs.NAME``."""
    texts = {name: text for name, value in values.items() if "'" in (text := _text(value))}
    quoted = single_quoted_inputs(component.command) if texts else frozenset()
    rule = "has a single quote in it, which would end the quoting in the command."
    hint = "Choose a value without single quotes."
    return [
        Problem(f"{shown_value(text)} {rule}", f"inputs.{name}", hint=hint)
        for name, text in texts.items()
        if name in quoted
    ]


def _text(value: Literal | Data | None) -> str:
    return "" if value is None else value.path if isinstance(value, Data) else literal_text(value)
