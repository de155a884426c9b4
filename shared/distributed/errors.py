"""What can go wrong between the ranks of a step, each as one exception; and how a line about it is printed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


class Refusal(Exception):  # noqa: N818  (it is a decision, not a fault)
    """What the user asked for cannot be: printed once, by rank 0, without a traceback; every rank exits with 2.

    Raise it with one or two sentences that hold the value, the rule and the next step.
    """

    kind = "refused"  # on the wire
    exit_code = 2


class UnsavedError(Refusal):
    """What was asked for is right, but could not be kept: like a ``Refusal``, but every rank exits with 1."""

    kind = "unsaved"
    exit_code = 1


class LaunchError(ValueError):
    """The environment does not say, or contradicts itself about, who this process is among the ranks."""


class ControlError(RuntimeError):
    """The ranks could not agree: nobody answered, the port was taken, or two ranks see different worlds."""


class WaitTimeoutError(ControlError, TimeoutError):
    """A wait reached its limit; the message names the ranks that were missing."""


class PeerError(ControlError):
    """Another rank has died, failed or left, so that this one cannot go on; the message names it."""


class OnceError(ControlError):
    """The function given to ``World.once`` failed in its leader; every rank raises this.

    Attributes:
        rank: the leader's rank.
        error_type: the class name of what the leader raised.
        error_message: its text.
    """

    def __init__(self, name: str, rank: int, node: int, error_type: str, error_message: str) -> None:
        super().__init__(f"once {name!r}: rank {rank} (node {node}) raised {error_type}: {error_message}")
        self.rank = rank
        self.error_type = error_type
        self.error_message = error_message


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as after ``<&-``.

    Otherwise the next file or socket gets its number, and a child process cannot inherit it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the lowest free descriptor is the stream's own
            stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: PTH123, SIM115 it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def print_line(text: str) -> None:
    """Write a line to standard error; `print` writes its end apart, and another thread's text may come between.

    A disk that is full, on which the log lies, is no reason to end.
    """
    with suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
