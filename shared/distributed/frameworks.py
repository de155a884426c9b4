"""The frameworks that ``init`` can start: each is one file with one function, imported when it is asked for.

The function is ``start_…(launch, control, backend, timeout) -> FrameworkGroup``: ``backend`` as ``init`` was given it,
``timeout`` for the framework's collectives. It may raise ``Refusal``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_STARTS = {
    "torch": ("torch_group", "start_torch"),
    "deepspeed": ("deepspeed_group", "start_deepspeed"),
    "horovod": ("horovod_group", "start_horovod"),
    "tensorflow": ("tensorflow_group", "start_tensorflow"),
}
"""Module and function; none is imported here by name, so that a step needs the files of its own framework alone."""


@dataclass(frozen=True, slots=True)
class FrameworkGroup:
    """A framework's ranks, ready to exchange tensors, on a ``torch.device`` or one of TensorFlow's by its name.

    The description is such as ``gloo on cpu``; `close` is called on success only, after all ranks are done.
    """

    device: Any
    description: str
    close: Callable[[], None]


def framework_starter(framework: str) -> Callable[..., FrameworkGroup]:
    """The ``start`` function of a framework.

    Raises:
        ValueError: there is no such framework.
    """
    if framework not in _STARTS:
        raise ValueError(f"framework={framework!r}: it has to be None or one of {', '.join(map(repr, _STARTS))}.")
    module, function = _STARTS[framework]
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)
