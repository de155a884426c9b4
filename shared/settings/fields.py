"""An input or output of a component, declared once: as a field of a frozen dataclass, with its text and its range.

    epochs: Annotated[int, Input("Passes over the training rows.", least=1)] = 15

The field's type and default are the port's. Fields that belong together are a group, a dataclass of its own; the
`Settings` of a component are made of groups. `allranks renew` writes the ports of component.yaml from them, and
`shared.settings.command_line` makes the script's arguments.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_TYPES = {int: "integer", float: "number", str: "string", bool: "string"}
_FLAG = ("true", "false")


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides whether an input has an effect: the values of all inputs, the dataset, and the ranks."""

    values: Mapping[str, Any]
    is_text: bool
    world_size: int
    on_cpu: bool


@dataclass(frozen=True, slots=True)
class Idle:
    """A condition under which an input has no effect; {name} in the reason stands for the value of an input."""

    reason: str
    applies: Callable[[Situation], bool]


@dataclass(frozen=True, slots=True)
class Input:
    """What there is to know about an input besides its type and default.

    Attributes:
        description: what Designer's user reads.
        least: smallest value of a number, itself included.
        most: largest value of a number, itself included; None: no end.
        unit: of a number, where it has one.
        kind: what a path leads to, in Azure ML's words.
        is_argument: False for what only the beginning of the command uses, such as torchrun's number of processes.
        is_identity: a training is continued only where this is as it was.
        idle: when it has no effect; a value that is not the default is then remarked on.
    """

    description: str
    least: float | None = None
    most: float | None = None
    unit: str = ""
    kind: str = "uri_folder"
    is_argument: bool = True
    is_identity: bool = False
    idle: tuple[Idle, ...] = ()

    def allows(self, value: float) -> bool:
        """Whether a number is in the range; NaN and infinite ones are in none."""
        largest = sys.float_info.max
        least, most = -largest if self.least is None else self.least, largest if self.most is None else self.most
        return least <= value <= most

    @property
    def range_words(self) -> str:
        """The range for a message."""
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Output:
    """What there is to know about a folder that is written.

    Attributes:
        description: what Designer's user reads.
        kind: Azure ML's type.
        mode: how it is mounted.
        port: its name in the YAML, where an input has that of the field; empty for the field's.
    """

    description: str
    kind: str = "uri_folder"
    mode: str | None = None
    port: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """A field as one component has it.

    Attributes:
        name: of the field, and of the port in the YAML.
        group: attribute of the Settings that holds it; empty for a field of the Settings themselves.
        declared: text, range and so on.
        type: in Azure ML's words.
        default: None where there is none; a flag's is a bool.
        is_optional: may be left out without a default.
        choices: texts that are allowed; empty for any.
        is_flag: a bool in Python, the texts true and false in YAML, since Designer handles nothing else reliably.
    """

    name: str
    group: str
    declared: Input | Output
    type: str
    default: Any
    is_optional: bool
    choices: tuple[str, ...]
    is_flag: bool

    @property
    def is_input(self) -> bool:
        """Whether it is read; the others are written."""
        return isinstance(self.declared, Input)

    @property
    def flag(self) -> str:
        """The argument of the script."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Change:
    """How a component's port differs from its group's: an annotation of the group's field, made by `change`."""

    name: str
    port: Mapping[str, Any]
    declared: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Without:
    """Fields of a group that a component does not offer; there they keep their default."""

    names: tuple[str, ...]


def change(name: str, description: str = "", **others: Any) -> Change:
    """Let one component have a port of a group in another way.

    Args:
        name: of the field.
        description: another text.
        others: `default` or `choices`, or a further attribute of `Input`.
    """
    port: dict[str, Any] = {key: others.pop(key) for key in ("default", "choices") if key in others}
    return Change(name, port, others | ({"description": description} if description else {}))


def without(*names: str) -> Without:
    """Leave fields of a group out of one component."""
    return Without(names)


def ports_of(settings: type) -> list[Port]:
    """All inputs and outputs of a component's Settings, in the order in which people see them.

    That is the order of the class attribute ORDER, the attributes' names, then that of the fields.
    """
    hints, order = get_type_hints(settings, include_extras=True), getattr(settings, "ORDER", ())
    names = [field.name for field in fields(settings)]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    defaults = {field.name: field.default for field in fields(settings)}
    return [port for name in names for port in _ports(name, hints[name], defaults[name])]


def _ports(name: str, hint: Any, default: Any) -> Iterator[Port]:
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        declared = next(note for note in notes if isinstance(note, Input | Output))
        yield _port(name, "", kind, declared, default)
        return
    left_out = {out for note in notes if isinstance(note, Without) for out in note.names}
    changes = {note.name: note for note in notes if isinstance(note, Change)}
    for port in ports_of(kind):
        if port.name not in left_out:
            yield _changed(replace(port, group=name), changes.pop(port.name, None))
    if changes:
        raise TypeError(f"{name} changes {', '.join(changes)}: there is no such field.")


def _changed(port: Port, change: Change | None) -> Port:
    if change is None:
        return port
    optional = port.is_optional and change.port.get("default") is None
    return replace(port, declared=replace(port.declared, **change.declared), is_optional=optional, **change.port)


def _port(name: str, group: str, kind: Any, declared: Input | Output, default: Any) -> Port:
    optional = get_origin(kind) in (Union, types.UnionType)
    if optional:
        kind = next(one for one in get_args(kind) if one is not type(None))
    choices = get_args(kind) if get_origin(kind) is Literal else _FLAG if kind is bool else ()
    type_name = declared.kind if kind is Path else _TYPES[str if choices else kind]
    return Port(
        name, group, declared, type_name, None if default is MISSING else default, optional, choices, kind is bool
    )


def values_of(settings: Any) -> dict[str, Any]:
    """The values of all ports by their names, as the command line has them: flags are "true" or "false", paths text."""
    found = {}
    for port in ports_of(type(settings)):
        value = getattr(getattr(settings, port.group) if port.group else settings, port.name)
        found[port.name] = _FLAG[not value] if port.is_flag else str(value) if isinstance(value, Path) else value
    return found


def range_problems(settings: Any) -> Iterator[str]:
    """Say which numbers are out of their ranges, for components that name all that is wrong at once."""
    for port in ports_of(type(settings)):
        value = getattr(getattr(settings, port.group) if port.group else settings, port.name)
        if value is None or not isinstance(port.declared, Input) or port.type not in ("integer", "number"):
            continue
        if not port.declared.allows(value):
            verdict = "is needed" if port.declared.most is None else "is possible"
            yield f"{port.name} {value:g}: {port.declared.range_words} {verdict}."


def idle_notes(settings: Any, *, is_text: bool, world_size: int, on_cpu: bool) -> Iterator[str]:
    """Say which inputs were given and have no effect; a default cannot be told from what was not given."""
    situation = Situation(values_of(settings), is_text, world_size, on_cpu)
    for port in ports_of(type(settings)):
        value = situation.values[port.name]
        given = value not in (None, _FLAG[not port.default] if port.is_flag else port.default)
        for idle in port.declared.idle if given and isinstance(port.declared, Input) else ():
            if idle.applies(situation):
                yield f"{port.name} has no effect here: {idle.reason.format_map(situation.values)}"
