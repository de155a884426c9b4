"""An input or output of a component, declared once: as a field of a frozen dataclass, with its text and its range.

    epochs: int = input_port("Passes over the training rows.", default=15, least=1)

The field's type and default are the port's. Fields that belong together are a group, a `settings_class` of its own; the
`Settings` of a component are made of groups. `allranks renew` writes the ports of component.yaml from them, and
`shared.settings.command_line` makes the script's arguments.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

T = TypeVar("T")

_TYPES = {int: "integer", float: "number", str: "string", bool: "string"}
_FLAG = ("true", "false")


@dataclass(frozen=True, slots=True)
class Situation:
    """What decides whether an input has an effect: the values of all inputs, the dataset, and the ranks."""

    values: Mapping[str, Any]
    is_text: bool
    has_pictures: bool
    world_size: int


@dataclass(frozen=True, slots=True)
class Idle:
    """A condition under which an input has no effect; {name} in the reason stands for the value of an input."""

    reason: str
    applies: Callable[[Situation], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """What there is to know about an input or output; `input_port` and `output_port` say what else it holds.

    Attributes:
        is_input: it is read; the others are written.
        name: of the field.
        group: attribute of the Settings that holds it; empty for a field of the Settings themselves.
        yaml_name: of the port, in component.yaml.
        type: in Azure ML's words.
        default: None where there is none; a flag's is a bool.
        is_optional: may be left out without a default.
        choices: texts that are allowed; empty for any.
    """

    description: str
    is_input: bool
    kind: str
    least: float | None = None
    most: float | None = None
    unit: str = ""
    is_argument: bool = True
    is_identity: bool = False
    idle: tuple[Idle, ...] = ()
    mode: str | None = None
    name: str = ""
    group: str = ""
    yaml_name: str = ""
    type: str = ""
    default: Any = None
    is_optional: bool = False
    choices: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        """A bool in Python, the texts true and false in YAML, since Designer handles nothing else reliably."""
        return self.choices == _FLAG

    @property
    def default_given(self) -> Any:
        """The default as it is given in YAML and on the command line."""
        return _FLAG[not self.default] if self.is_flag else self.default

    @property
    def is_number(self) -> bool:
        """Whether it may have a range."""
        return self.type in ("integer", "number")

    @property
    def flag(self) -> str:
        """The argument of the script."""
        return "--" + self.name.replace("_", "-")

    def allows(self, value: float) -> bool:
        """Whether a number is in the range; NaN and infinite ones are in none."""
        largest = sys.float_info.max
        least, most = -largest if self.least is None else self.least, largest if self.most is None else self.most
        return least <= value <= most

    @property
    def range_words(self) -> str:
        """The range for a message."""
        return f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"


def input_port(
    description: str,
    *,
    default: T = MISSING,  # type: ignore[assignment]  # without one, the input has to be given
    least: float | None = None,
    most: float | None = None,
    unit: str = "",
    kind: str = "uri_folder",
    is_argument: bool = True,
    is_identity: bool = False,
    idle: tuple[Idle, ...] = (),
) -> T:
    """Declare an input.

    Args:
        description: what Designer's user reads.
        default: None for an input that may be left out.
        least: smallest value of a number, itself included.
        most: largest value of a number, itself included; None: no end.
        unit: of a number, where it has one.
        kind: what a path leads to, in Azure ML's words.
        is_argument: False for what only the beginning of the command uses, such as torchrun's number of processes.
        is_identity: a training is continued only where this is as it was.
        idle: when it has no effect; a value that is not the default is then remarked on.
    """
    port = Port(
        description=description,
        is_input=True,
        kind=kind,
        least=least,
        most=most,
        unit=unit,
        is_argument=is_argument,
        is_identity=is_identity,
        idle=idle,
    )
    return field(default=default, metadata={"port": port})


def output_port(description: str, *, kind: str = "uri_folder", mode: str | None = None, yaml_name: str = "") -> Path:
    """Declare a folder that is written, of Azure ML's type `kind`, mounted in a `mode`.

    Its `yaml_name` in component.yaml is given where an input has that of the field.
    """
    port = Port(description=description, is_input=False, kind=kind, mode=mode, yaml_name=yaml_name)
    return field(metadata={"port": port})


def changed_group(*, without: Sequence[str] = (), **changes: Mapping[str, Any]) -> Any:
    """Let one component have a group in another way: `without` some fields, which keep their default, or with changes.

    Each of these is made by `change`.
    """
    return field(metadata={"without": without, "changes": changes})


def change(description: str = "", **others: Any) -> Mapping[str, Any]:
    """Say how a component's port differs from its group's: its text, default, choices or a further attribute."""
    return others | ({"description": description} if description else {})


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(input_port, output_port, changed_group)
)
def settings_class(kind: type[T]) -> type[T]:
    """Make a class of ports: a group, or the Settings of a component."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


def ports_of(settings: type) -> list[Port]:
    """All inputs and outputs of a component's Settings, in the order in which people see them.

    That is the order of the class attribute ORDER, the attributes' names, then that of the fields.
    """
    hints, order = get_type_hints(settings), getattr(settings, "ORDER", ())
    found = sorted(fields(settings), key=lambda one: order.index(one.name) if one.name in order else len(order))
    return [port for one in found for port in _ports(one, hints[one.name])]


def _ports(declared: Field[Any], kind: Any) -> Iterator[Port]:
    name, notes = declared.name, declared.metadata
    if not is_dataclass(kind):
        yield _port(name, kind, notes["port"], declared.default)
        return
    changes = dict(notes.get("changes", {}))
    for port in ports_of(kind):  # type: ignore[arg-type]
        if port.name not in notes.get("without", ()):
            changed = changes.pop(port.name, {})
            optional = port.is_optional and changed.get("default") is None
            yield replace(port, group=name, is_optional=optional, **changed)
    if changes:
        raise TypeError(f"{name} changes {', '.join(changes)}: there is no such field.")


def _port(name: str, kind: Any, declared: Port, default: Any) -> Port:
    optional = get_origin(kind) in (Union, types.UnionType)
    if optional:
        kind = next(one for one in get_args(kind) if one is not type(None))
    choices = get_args(kind) if get_origin(kind) is Literal else _FLAG if kind is bool else ()
    type_name = declared.kind if kind is Path else _TYPES[str if choices else kind]
    default = None if default is MISSING else default
    return replace(
        declared,
        name=name,
        yaml_name=declared.yaml_name or name,
        type=type_name,
        default=default,
        is_optional=optional,
        choices=choices,
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
    values = values_of(settings)
    for port in ports_of(type(settings)):
        value = values[port.name]
        if port.is_number and value is not None and not port.allows(value):
            verdict = "is needed" if port.most is None else "is possible"
            yield f"{port.name} {value:g}: {port.range_words} {verdict}."


def idle_notes(settings: Any, *, is_text: bool, has_pictures: bool, world_size: int) -> Iterator[str]:
    """Say which inputs were given and have no effect; a default cannot be told from what was not given."""
    situation = Situation(values_of(settings), is_text, has_pictures, world_size)
    for port in ports_of(type(settings)):
        value = situation.values[port.name]
        for idle in port.idle if value not in (None, port.default_given) else ():
            if idle.applies(situation):
                yield f"{port.name} has no effect here: {idle.reason.format_map(situation.values)}"
