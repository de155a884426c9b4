"""The components as the SDK's own component functions; ``components.pyi`` describes them to editors and checkers."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any

from allranks import catalogue
from allranks.azure.sdk import sdk_hint
from allranks.errors import CannotRunHereError

_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool}


class Components:
    """The library's components: ``components.train_ddp(data=..., epochs=3)`` is a step of the SDK.

    Every access loads the component anew. The SDK lets all steps of one component object share its resources and
    distribution, so that changing one step would change them all.
    """

    def __getattr__(self, name: str) -> Any:
        path = None if name.startswith("_") else catalogue.component_files().get(name)
        if path is None:
            near = get_close_matches(name, catalogue.COMPONENTS, n=3) or catalogue.COMPONENTS
            raise AttributeError(f"there is no component {name!r}; there is {', '.join(near)}")
        try:
            from azure.ai.ml import load_component
        except ImportError as error:
            message = f"Components as steps need the Azure ML SDK, azure-ai-ml ({error})."
            raise CannotRunHereError(message, sdk_hint()) from None
        return _signed(load_component(path))

    def __dir__(self) -> list[str]:
        return list(catalogue.COMPONENTS)

    def __repr__(self) -> str:
        return f"components({', '.join(catalogue.COMPONENTS)})"


components = Components()
"""The components of the library by name."""


def _signed(component: Any) -> Any:
    """The component with its true signature: the SDK gives every input the default None and hides it in a function."""
    from azure.ai.ml.entities import Command

    parameters = [_parameter(name, port) for name, port in component.inputs.items()]
    component.__signature__ = inspect.Signature(parameters, return_annotation=Command)
    lines = [f"    {name}: {' '.join((port.description or '').split())}" for name, port in component.inputs.items()]
    component.__doc__ = "\n".join([component.description or component.name, "", "Args:", *lines])
    return component


def _parameter(name: str, port: Any) -> inspect.Parameter:
    from azure.ai.ml import Input

    default = inspect.Parameter.empty if port.default is None and not port.optional else port.default
    annotation = _TYPES.get(port.type, Input)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
