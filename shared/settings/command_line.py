"""The command line of a component, from its Settings: arguments in ranges, and one message for what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

from shared.distributed import LaunchError, Refusal, init
from shared.settings.fields import Port, ports_of

SomeSettings = TypeVar("SomeSettings")


@contextmanager
def refusing_once() -> Iterator[None]:
    """Let one rank say what is refused before the ranks have met, and all leave with exit code 2."""
    try:
        yield
    except (Refusal, LaunchError) as refusal:
        with init():
            raise refusal from None


_ONE_DATASET = "is removed: a trainer reads one dataset. Put the files of all into one folder, and prepare that."
_CONVERT = "is not read: convert the files to dataset npy with the ten lines in docs/data.md."
_REMOVED = {
    "argument --dataset: invalid choice: 'cifar'": f"dataset cifar {_CONVERT}",
    "argument --dataset: invalid choice: 'idx'": f"dataset idx {_CONVERT}",
    "--autotune": "autotune is removed: compare short runs with other values of zero_stage and accumulation_steps.",
    "--cpu-offload": "cpu_offload is removed: it failed on GPUs. In a script of your own use FSDP2's CPUOffloadPolicy.",
    "--cache-gb": "cache_gb is removed: shards are not copied to the node. Give data the mode download instead.",
    **{f"--data-{number}": f"data_{number} {_ONE_DATASET}" for number in (2, 3, 4)},
    "--data-weights": f"data_weights {_ONE_DATASET} Repeat files to give them more weight.",
}
"""What to use instead of an input or choice that is no longer there, by words of the parser's message."""


class ArgumentParser(argparse.ArgumentParser):
    """Reads a component's arguments; what is wrong with them is said once, not by each rank."""

    def error(self, message: str) -> NoReturn:
        """Refuse: see `refusing_once`."""
        hints = [hint for flag, hint in _REMOVED.items() if f"{flag} " in message or f"{flag}=" in message]
        with refusing_once():
            raise Refusal("\n".join([message, *hints]))
        raise AssertionError  # the block above has ended this process


def read_settings(
    kind: type[SomeSettings],
    description: str | None = None,
    words: Sequence[str] | None = None,
    *,
    check_ranges: bool = True,
) -> SomeSettings:
    """Read the Settings of a component from its command line.

    Args:
        kind: the component's Settings.
        description: what `--help` says.
        words: in the place of the arguments of this process.
        check_ranges: False leaves the ranges to `fields.range_problems`, which names all that is wrong at once.
    """
    given = vars(make_parser(kind, description, check_ranges=check_ranges).parse_args(words))
    groups: dict[str, dict[str, Any]] = {}
    for port in ports_of(kind):
        value = given[port.name]
        groups.setdefault(port.group, {})[port.name] = value == "true" if port.is_flag else value
    own = groups.pop("", {})
    types = get_type_hints(kind)
    return kind(**own, **{name: types[name](**values) for name, values in groups.items()})


def make_parser(kind: type, description: str | None = None, *, check_ranges: bool = True) -> ArgumentParser:
    """Make the parser of a component's arguments; see `read_settings`."""
    parser = ArgumentParser(description=description)
    for port in ports_of(kind):
        if not port.is_argument:
            continue
        parser.add_argument(
            port.flag,
            type=_reader(port, check_ranges=check_ranges),
            choices=port.choices or None,
            default=port.default_given,
            required=port.default is None and not port.is_optional,
            help=(port.description + (f" [{port.unit}]" if port.unit else "")).replace("%", "%%"),
        )
    return parser


def _reader(port: Port, *, check_ranges: bool) -> Callable[[str], Any]:
    if port.is_number:
        return _number_reader(port, check_range=check_ranges)
    return str if port.type == "string" else _path


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("a path is needed, not an empty text")
    return Path(text)


def _number_reader(port: Port, *, check_range: bool) -> Callable[[str], float]:
    whole = port.type == "integer"

    def parse(text: str) -> float:
        value = int(text) if whole else float(text)
        if check_range and not port.allows(value):
            raise argparse.ArgumentTypeError(f"{value} is out of range: {port.range_words}")
        return value

    parse.__name__ = "whole number" if whole else "number"  # argparse names it: invalid whole number value: 'abc'
    return parse
