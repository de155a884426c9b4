"""``port``: an input of a pipeline that is an input of a component, without saying again what that one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allranks import catalogue
from allranks.azure.sdk import sdk_hint
from allranks.cli.text import name_suggestion
from allranks.errors import CannotRunHereError, UnknownNameError
from allranks.spec import read_component
from allranks.spec.values import plain_number


def port(component: str | Path, name: str, **changes: Any) -> Any:
    """The SDK's ``Input`` for an input of a component: its type, range, choices, default and description.

    For the annotations of a function with ``@pipeline``. Where the pipeline's default is another one, it is given as
    everywhere in Python; where there is none, the component's counts::

        def my_pipeline(*, epochs: port("train_ddp", "epochs"), seed: port("train_ddp", "seed") = 7): ...

    Args:
        component: a name from ``allranks list``, or the path of a ``component.yaml``.
        name: the input.
        changes: what is different in the pipeline, such as ``description`` or ``max``, in the words of ``Input``.

    Raises:
        UnknownNameError: there is no such component, or it has no such input.
        CannotRunHereError: the Azure ML SDK is not installed.
    """
    file = catalogue.component_files().get(str(component), Path(component))
    if not file.is_file():
        message = f"there is no component '{component}'{name_suggestion(str(component), catalogue.COMPONENTS)}."
        hint = f"Components: {', '.join(catalogue.COMPONENTS)}; or the path of a component.yaml."
        raise UnknownNameError(message, hint)
    inputs = read_component(file).inputs
    if name not in inputs:
        message = f"'{component}' has no input {name!r}{name_suggestion(name, inputs)}."
        raise UnknownNameError(message, f"Its inputs: {', '.join(inputs)}.")
    try:
        from azure.ai.ml import Input
    except ImportError as error:
        message = f"Inputs of a pipeline need the Azure ML SDK, azure-ai-ml ({error})."
        raise CannotRunHereError(message, sdk_hint()) from None
    declared = inputs[name]
    said: dict[str, Any] = {"type": declared.type, "optional": declared.optional}
    said |= {"description": declared.description or None, "enum": list(declared.enum) or None}
    said |= {key: plain_number(getattr(declared, key)) for key in ("default", "min", "max") if not declared.is_data}
    said |= changes
    said["optional"] = said["optional"] or None  # the SDK would send a false
    return Input(**{key: value for key, value in said.items() if value is not None})
