"""The frameworks that ``init`` can start: each is one file with one function, imported when it is asked for.

Such a file has ``start(launch, control, backend, timeout) -> Group``. It may raise ``Refusal``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

_FILES = {
    "torch": "torch_group",
    "deepspeed": "deepspeed_group",
    "horovod": "horovod_group",
    "tensorflow": "tensorflow_group",
}


class Group(Protocol):
    """A framework's ranks, ready to exchange tensors."""

    @property
    def device(self) -> Any:
        """Where this rank computes."""

    @property
    def description(self) -> str:
        """Backend and kind of device, such as ``gloo on cpu``."""

    def close(self) -> None:
        """End the group; called on success only, after all ranks are done."""


def starter(framework: str) -> Callable[..., Group]:
    """The ``start`` function of a framework.

    Raises:
        ValueError: there is no such framework.
    """
    if framework not in _FILES:
        raise ValueError(f"framework={framework!r}: it has to be None or one of {', '.join(map(repr, _FILES))}.")
    start: Callable[..., Group] = importlib.import_module(f"{__package__}.{_FILES[framework]}").start
    return start
