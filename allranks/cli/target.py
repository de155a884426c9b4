"""What a verb's TARGET stands for: a name of the library, a YAML file, or a pipeline function in a Python file."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from allranks import catalogue
from allranks.azure.python_target import is_python_target, read_python_pipeline
from allranks.cli.inputs import TARGET_CHOICES
from allranks.cli.text import YAML_SUFFIXES, name_suggestion, why_no_yaml
from allranks.errors import UnknownNameError
from allranks.spec import Component, Pipeline, Step, read_spec
from allranks.spec.reader import FileResolver


def load_target(target: str, resolve: FileResolver = catalogue.resolve) -> Pipeline:
    """Read a target; a component becomes a pipeline of one step with the component's inputs.

    Args:
        target: what the user named.
        resolve: gives the file of a component that a pipeline names by its id.

    Raises:
        UnknownNameError: no file and no name of the library.
        SpecError: the document is not valid.
    """
    document = _read(target, resolve)
    return document if isinstance(document, Pipeline) else one_step_pipeline(document)


def target_folder(target: str) -> Path:
    """The folder that a target's files lie in; the working folder for a name of the library."""
    path = Path(target.partition(".py:")[0] if is_python_target(target) else target)
    return path.absolute().parent if path.suffix in {*YAML_SUFFIXES, ""} and path.parent.is_dir() else Path.cwd()


def _read(target: str, resolve: FileResolver) -> Component | Pipeline:
    return read_python_pipeline(target) if is_python_target(target) else read_spec(find_yaml(target), resolve=resolve)


def find_yaml(target: str) -> Path:
    """The YAML of a target that is no Python function.

    Raises:
        UnknownNameError: no file and no name of the library.
    """
    path = Path(target)
    if path.suffix in YAML_SUFFIXES and path.is_file():
        return path
    known = catalogue.resolve(target)
    if known is not None:
        return known
    why = why_no_yaml(target)
    if why:
        raise UnknownNameError(f"{why}.", f"Give {TARGET_CHOICES}.")
    close = name_suggestion(target, [*catalogue.pipeline_files(), *catalogue.component_files()])
    raise UnknownNameError(
        f"{target!r} is no file and no name of the library{close}.",
        f"Give {TARGET_CHOICES}. Pipelines: {', '.join(catalogue.pipeline_files())}.",
    )


def one_step_pipeline(component: Component) -> Pipeline:
    """A pipeline of one step, called like the component, whose inputs are the component's."""
    inputs = {name: f"${{{{parent.inputs.{name}}}}}" for name in component.inputs}
    outputs = {name: f"${{{{parent.outputs.{name}}}}}" for name in component.outputs}
    step = Step(component.name, component, MappingProxyType(inputs), MappingProxyType(outputs))
    return Pipeline(
        name=component.name,
        source=component.source,
        display_name=component.display_name,
        inputs=component.inputs,
        outputs=component.outputs,
        steps=MappingProxyType({component.name: step}),
    )
