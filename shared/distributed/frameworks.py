"""The frameworks that ``init`` can start: each is one file with one function, imported when it is asked for.

The function is ``start_…(launch, control, backend, timeout) -> FrameworkGroup``. It may raise ``Refusal``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

_STARTS = {
    "torch": ("torch_group", "start_torch"),
    "deepspeed": ("deepspeed_group", "start_deepspeed"),
    "horovod": ("horovod_group", "start_horovod"),
    "tensorflow": ("tensorflow_group", "start_tensorflow"),
}
"""Module and function; none is imported here by name, so that a step needs the files of its own framework alone."""


class FrameworkGroup(Protocol):
    """A framework's ranks, ready to exchange tensors."""

    @property
    def device(self) -> Any:
        """Where this rank computes."""

    @property
    def description(self) -> str:
        """Backend and kind of device, such as ``gloo on cpu``."""

    def close(self) -> None:
        """End the group; called on success only, after all ranks are done."""


def framework_starter(framework: str) -> Callable[..., FrameworkGroup]:
    """The ``start`` function of a framework.

    Raises:
        ValueError: there is no such framework.
    """
    if framework not in _STARTS:
        raise ValueError(f"framework={framework!r}: it has to be None or one of {', '.join(map(repr, _STARTS))}.")
    module, function = _STARTS[framework]
    start: Callable[..., FrameworkGroup] = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    return start
