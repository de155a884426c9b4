"""Distributed-training components for Azure ML pipelines, and the tool that runs the same pipelines on one machine.

``components`` and ``scale`` need the Azure ML SDK and load it when they are first used; ``import allranks`` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.azure.composing import components, scale

    __version__: str

__all__ = ["__version__", "components", "scale"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from allranks.library import VERSION

        return VERSION
    if name in __all__:
        from allranks.azure import composing

        return getattr(composing, name)
    raise AttributeError(f"module 'allranks' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
