"""What is missing for somebody who sees a component in Designer only: on the canvas, in the list, in a node's panel."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec.model import Component, Input, Output, Pipeline, Source

_DISPLAY_NAME_LENGTH = 40  # a node of the canvas is about as wide


def check_designer(document: Component | Pipeline) -> list[Problem]:
    """Find what a component, or a pipeline that becomes one, lacks in Designer.

    Returns:
        An error for what Designer handles wrongly, a warning for what its user has to guess; empty when all is well.
    """
    source = document.source
    found = [*_head(document)]
    for port in document.inputs.values():
        found += [*_described(source, "inputs", port), *_value(source, port)]
    for output in document.outputs.values():
        found += _described(source, "outputs", output)
    return found


def _head(document: Component | Pipeline) -> Iterator[Problem]:
    source, shown = document.source, document.display_name
    if not shown:
        message = f"has no display name, so the canvas shows '{document.name}'."
        yield source.problem("display_name", message, "Write display_name: in words.", "warning")
    elif len(shown) > _DISPLAY_NAME_LENGTH:
        message = f"has {len(shown)} characters; a node of the canvas shows about {_DISPLAY_NAME_LENGTH}."
        yield source.problem("display_name", message, "Move the rest into the description.", "warning")
    if not document.description.strip():
        message = "has no description: in the list of components nothing says what it does."
        hint = "Write what goes in, what comes out, and when to use it."
        yield source.problem("description", message, hint, "warning")
    if not document.tags:
        message = "has no tags, by which the list of components is filtered."
        yield source.problem("tags", message, "Write tags: {category: training}, for example.", "warning")


def _described(source: Source, kind: str, port: Input | Output) -> Iterator[Problem]:
    where = f"{kind}.{port.name}"
    said = port.description.strip()
    if not said:
        yield source.problem(where, "has no description; in Designer its name is all there is.", severity="warning")
    elif said.rstrip(".").casefold() == port.name.replace("_", " ").casefold():
        message = f"its description says no more than its name: '{said}'."
        yield source.problem(f"{where}.description", message, severity="warning")


def _value(source: Source, port: Input) -> Iterator[Problem]:
    where = f"inputs.{port.name}"
    if port.type == "boolean":
        hint = 'Write type: string with enum: ["true", "false"].'
        yield source.problem(f"{where}.type", "Designer passes a boolean on as the text True or False.", hint)
    if port.enum and port.default is None and not port.optional:
        message = "has choices and no default, so every use has to open the list."
        yield source.problem(where, message, f"Write default: {port.enum[0]}.", "warning")
    if port.type in ("integer", "number") and port.min is None and port.max is None:
        message = "has no range, so a slip of the keyboard is found only when the step runs."
        yield source.problem(where, message, "Write min: or max:, or both.", "warning")
