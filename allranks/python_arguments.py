"""What ``allranks.run`` was given, as a request has it: what the command line would have been given in its place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from allranks.cli.inputs import parse_scale
from allranks.errors import UsageError
from allranks.performing import absolute_mapping, chosen_interpreter, chosen_step_environment
from allranks.request import ANY_CLIENT, ScriptRequest, is_script


@dataclass(frozen=True, slots=True)
class ScriptArguments:
    """What only a script takes.

    Attributes:
        arguments: what stands after its name, such as ``["--epochs", 3]``.
        distribution: ``pytorch``, ``mpi``, ``tensorflow`` or ``none``; empty where it is to be recognised.
        code: the folder that each node gets a copy of; empty for the script's own.
    """

    arguments: Sequence[Any]
    distribution: str
    code: str | os.PathLike[str]

    def request(self, target: str) -> ScriptRequest | None:
        """The script that is to run; None for another target. Raises UsageError for what does not go together."""
        if is_script(target):
            return replace(self.given(), script=target)
        asked = {"arguments": self.arguments, "distribution": self.distribution, "code": self.code}
        if given := [name for name, value in asked.items() if value]:
            raise UsageError(f"{', '.join(given)}: only a script takes this.", "A script is FILE.py or FILE.ipynb.")
        return None

    def given(self) -> ScriptRequest:
        """The same as a request has it, of a script that a resumed run knows."""
        if isinstance(self.arguments, str):
            hint = f"Write arguments={self.arguments.split()!r}."
            raise UsageError(f"arguments={self.arguments!r} is one text: each word is one of a list.", hint)
        arguments = tuple(map(value_text, self.arguments))
        return ScriptRequest(arguments=arguments, distribution=self.distribution, code=os.fspath(self.code))


def asked_places(
    map: Mapping[str, str | os.PathLike[str]] | None,  # noqa: A002 the name of the option
    python: Mapping[str, str | os.PathLike[str]] | None,
    environment: Mapping[str, str | os.PathLike[str]] | None,
    containers: bool | str | None,  # noqa: FBT001
) -> dict[str, Any]:
    """What stands for the cloud, and in what steps run, as a request has them."""
    return {
        "map": tuple(absolute_mapping(text) for text in _pairs(map)),
        "python": dict(chosen_interpreter(text) for text in _pairs(python)),
        "environment": dict(chosen_step_environment(text) for text in _pairs(environment)),
        "containers": ANY_CLIENT if containers is True else "" if containers is False else containers,
    }


def asked_scale(given: str | Mapping[str, tuple[int, int]] | None) -> dict[str, tuple[int, int]]:
    """Step to (nodes, processes); a text is what ``--scale`` would be given."""
    if isinstance(given, str):
        return dict([parse_scale(given)])
    return {step: (nodes, processes) for step, (nodes, processes) in (given or {}).items()}


def input_texts(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Values as the command line would have them; an input of the SDK by its path."""
    return {name: value_text(value) for name, value in inputs.items() if value is not None}


def value_text(value: Any) -> str:
    """One value as the command line would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    path = getattr(value, "path", None)
    return str(value if path is None or isinstance(value, os.PathLike) else path)


def _pairs(given: Mapping[str, str | os.PathLike[str]] | None) -> list[str]:
    """What an option of the command line would be given."""
    return [f"{name}={os.fspath(value)}" for name, value in (given or {}).items()]
