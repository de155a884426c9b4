"""Distributed-training components for Azure ML pipelines, and the tool that runs the same pipelines on one machine.

``components``, ``port``, ``scale`` and ``submit`` need the Azure ML SDK and load it when they are first used;
``import allranks`` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.api import compare, load_run, run, runs, submit
    from allranks.azure.component_port import port
    from allranks.azure.components import components
    from allranks.azure.composing import scale
    from allranks.errors import AllranksError
    from allranks.notebook.view import RunFailedError, RunView

    __version__: str

__all__ = [
    "AllranksError",
    "RunFailedError",
    "RunView",
    "__version__",
    "compare",
    "components",
    "load_run",
    "port",
    "run",
    "runs",
    "scale",
    "submit",
]
_HOMES = {
    "components": "azure.components",
    "port": "azure.component_port",
    "scale": "azure.composing",
    "AllranksError": "errors",
    **dict.fromkeys(("RunFailedError", "RunView"), "notebook.view"),
    **dict.fromkeys(("compare", "load_run", "run", "runs", "submit"), "api"),
}
"""Each name and its module."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from allranks.library import VERSION

        return VERSION
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"allranks.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'allranks' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
