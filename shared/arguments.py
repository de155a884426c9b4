"""Command lines of components: arguments in ranges, the times that ranks wait, and one message for what is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn, TypedDict, TypeVar

from shared.distributed import Refusal, init

Number = TypeVar("Number", int, float)


@contextmanager
def one_voice() -> Iterator[None]:
    """Let one rank say what is refused before the ranks have met, and all leave with exit code 2."""
    try:
        yield
    except Refusal as refusal:
        with init():
            raise refusal from None


class Parser(argparse.ArgumentParser):
    """Reads a component's arguments; what is wrong with them is said once, not by each rank."""

    def error(self, message: str) -> NoReturn:
        """Refuse: see `one_voice`."""
        with one_voice():
            raise Refusal(message)
        raise AssertionError  # the block above has ended this process


class Waits(TypedDict):
    """The arguments of `init` that say how long a rank waits for others."""

    timeout: timedelta
    step_timeout: timedelta


def waits(args: argparse.Namespace) -> Waits:
    """Give the two times of a component: for the start, and for each later wait; the arguments are in minutes."""
    return {
        "timeout": timedelta(minutes=args.init_timeout),
        "step_timeout": timedelta(minutes=args.step_timeout),
    }


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """Make the type of an argument: a whole number in a range, both ends included."""

    def parse(text: str) -> int:
        return _within(int(text), least, most)

    parse.__name__ = "whole number"  # argparse names the type by it: invalid whole number value: 'abc'
    return parse


def number(least: float, most: float | None = None) -> Callable[[str], float]:
    """Make the type of an argument: a number in a range, both ends included."""

    def parse(text: str) -> float:
        return _within(float(text), least, most)

    parse.__name__ = "number"
    return parse


def _within(value: Number, least: float, most: float | None) -> Number:
    if not least <= value <= (sys.float_info.max if most is None else most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise argparse.ArgumentTypeError(f"{value} is out of range: {allowed}")
    return value
