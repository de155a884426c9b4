"""The command of a component: how each argument of a script stands in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.script.arguments import OVERRIDE, PAIR, SEVERAL, SWITCH, ScriptArgument
from allranks.script.paths import WRITTEN, PathRole
from allranks.script.subcommands import Subcommand

_TORCHRUN = (
    "torchrun",
    "--nnodes $AZUREML_NODE_COUNT",
    "--nproc_per_node '${{inputs.processes_per_node}}'",
    "--node_rank $NODE_RANK",
    "--master_addr $MASTER_ADDR",
    "--master_port $MASTER_PORT",
)


@dataclass(frozen=True, slots=True)
class ScriptPort:
    """An argument as a port of the component: an output, an input that is data, or a literal input.

    ``value`` is of data the path in the user's tree that stands for it, or None.
    """

    argument: ScriptArgument
    role: PathRole | None = None
    value: Path | None = None

    @property
    def is_output(self) -> bool:
        """Whether the script writes there."""
        return self.role is not None and self.role.use == WRITTEN

    @property
    def is_optional(self) -> bool:
        """Whether the script may be started without it."""
        if self.is_output or self.argument.required:
            return False
        return self.role is not None or self.argument.default is None


def start_lines(script: Path, *, uses_torchrun: bool) -> Iterator[str]:
    """What starts a script, by its path in the snapshot."""
    *first, last = _TORCHRUN if uses_torchrun else ("python",)
    yield from first
    yield f"{last} {shlex.quote(script.as_posix())}"


def argument_lines(ports: Sequence[ScriptPort], subcommand: Subcommand) -> Iterator[str]:
    """The arguments and the words of the subcommand, each argument behind the word that it belongs to."""
    for level in range(len(subcommand) + 1):
        given = [port for port in ports if port.argument.level == level]
        if level < len(subcommand):  # what has several values would take the subcommand for one of these
            given.sort(key=lambda port: port.argument.form != SEVERAL)
        else:  # positional ones first: behind an option with several values they would be taken for one of these
            given.sort(key=lambda port: bool(port.argument.flag))
        yield from map(_command_part, given)
        yield from map(shlex.quote, subcommand[level : level + 1])


def _command_part(port: ScriptPort) -> str:
    """How an argument stands in the command; what ``$(…)`` prints are the words of a switch, or of several values."""
    argument = port.argument
    reference = f"'${{{{{'outputs' if port.is_output else 'inputs'}.{argument.name}}}}}'"
    if argument.form == SWITCH:
        return f"$([ {reference} = true ] && echo {argument.flag})"
    if argument.form == PAIR:
        words = f"$([ {reference} = true ] && echo {argument.flag} || echo {argument.off})"
        return f"$[[{words}]]" if port.is_optional else words
    if argument.form == OVERRIDE:
        return f"$[[{argument.flag}={reference}]]" if port.is_optional else f"{argument.flag}={reference}"
    value = f"$(echo {reference})" if argument.form == SEVERAL else reference
    # A single dash, as click and argparse have it for short options, is followed by its value just the same.
    part = f"{argument.flag} {value}".strip()
    return f"$[[{part}]]" if port.is_optional else part
