"""What a verb's TARGET stands for: a name of the library, a YAML file, or a pipeline function in a Python file.

And what an option stands for that no verb has: mostly an input of the target, written as other tools would have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from allranks import catalogue
from allranks.azure.python_target import is_python_target, read_python_pipeline
from allranks.cli.inputs import TARGET_CHOICES
from allranks.cli.text import YAML_SUFFIXES, name_suggestion, why_no_yaml
from allranks.errors import AllranksError, UnknownNameError
from allranks.local.settings import input_names
from allranks.request import is_script
from allranks.spec import Component, Pipeline, Step, read_spec
from allranks.spec.reader import FileResolver


def load_target(target: str, resolve: FileResolver = catalogue.resolve) -> Pipeline:
    """Read a target; a component becomes a pipeline of one step with the component's inputs.

    ``resolve`` gives the file of a component that a pipeline names by its id.

    Raises:
        UnknownNameError: no file and no name of the library.
        SpecError: the document is not valid.
    """
    if is_python_target(target):
        return read_python_pipeline(target)
    document = read_spec(find_yaml(target), resolve=resolve)
    return document if isinstance(document, Pipeline) else one_step_pipeline(document)


def folder_document(target: str) -> str:
    """The document that a target stands for which is a folder: its pipeline, or else its component; others as given.

    A name of the library is none: ``./train_ddp`` is a folder, ``train_ddp`` the component.

    Raises:
        UnknownNameError: there is neither in the folder.
    """
    folder = Path(target)
    if not target or not folder.is_dir() or catalogue.resolve(target) is not None:
        return target
    found = [folder / f"{kind}{suffix}" for kind in ("pipeline", "component") for suffix in (".yml", ".yaml")]
    there = [path for path in found if path.is_file()]
    if not there:
        scripts = sorted(path.name for path in folder.glob("*.py"))
        hint = f"`allranks init {folder / scripts[0]}` writes them." if scripts else f"Give {TARGET_CHOICES}."
        raise UnknownNameError(f"the folder {target!r} has neither a pipeline.yml nor a component.yaml.", hint)
    return str(there[0])


def target_folder(target: str) -> Path:
    """The folder that a target's files lie in; the working folder for a name of the library."""
    path = Path(target.partition(".py:")[0] if is_python_target(target) else target)
    return path.absolute().parent if path.suffix in {*YAML_SUFFIXES, ""} and path.parent.is_dir() else Path.cwd()


def find_yaml(target: str) -> Path:
    """The YAML of a target that is no function; raises UnknownNameError for no file and no name of the library."""
    path = Path(target)
    if path.suffix in YAML_SUFFIXES and path.is_file():
        return path
    known = catalogue.resolve(target)
    if known is not None:
        return known
    if why := why_no_yaml(target):
        raise UnknownNameError(f"{why}.", f"Give {TARGET_CHOICES}.")
    if Path(f"{target}.py").is_file():
        raise UnknownNameError(f"{target!r} is no file; a script is named with its ending.", f"Write {target}.py.")
    close = name_suggestion(target, [*catalogue.pipeline_files(), *catalogue.component_files()])
    raise UnknownNameError(
        f"{target!r} is no file and no name of the library{close}.",
        f"Give {TARGET_CHOICES}. Pipelines: {', '.join(catalogue.pipeline_files())}.",
    )


def one_step_pipeline(component: Component) -> Pipeline:
    """A pipeline of one step, called like the component, whose inputs are the component's."""
    inputs = {name: f"${{{{parent.inputs.{name}}}}}" for name in component.inputs}
    outputs = {name: f"${{{{parent.outputs.{name}}}}}" for name in component.outputs}
    step = Step(
        component.name, component, MappingProxyType(inputs), MappingProxyType(outputs), kind=component.step_kind
    )
    return Pipeline(
        name=component.name,
        source=component.source,
        display_name=component.display_name,
        inputs=component.inputs,
        outputs=component.outputs,
        steps=MappingProxyType({component.name: step}),
    )


def unknown_option(option: str, given: Sequence[str], options: Sequence[str], message: str) -> tuple[str, str]:
    """The message and the hint for an option, as written and without a value, that ``run`` or ``submit`` does not have.

    ``given`` are all arguments of the verb, ``options`` those that it has; ``message`` is what argparse says of them.
    """
    target = next((one for one in given if not one.startswith("-") and "=" not in one), "")
    name = option.lstrip("-").replace("-", "_")
    inputs = _inputs_of(target)
    if is_script(target):
        said = f"{option} is no option of `allranks run`{name_suggestion(option, options, cutoff=0.8)}."
        return said, f"If it is an argument of {target}, write it after --: allranks run {target} -- {option} …"
    if name in inputs:
        return f"{option} is an input of {target} and no option.", f"Write {_assigned(name, option, given)}."
    if close := name_suggestion(option, options, cutoff=0.8):
        return f"{message}{close}.", ""
    if similar := get_close_matches(name, inputs, n=1, cutoff=0.7):
        return f"{message} (did you mean {_assigned(similar[0], option, given)}?).", ""
    return f"{message}.", "An input is given as NAME=VALUE."


def _inputs_of(target: str) -> list[str]:
    try:
        return input_names(load_target(target)) if target else []
    except AllranksError:
        return []


def _assigned(name: str, option: str, given: Sequence[str]) -> str:
    """``epochs=5``, with the value that followed the option, if one did."""
    at = next(index for index, one in enumerate(given) if one.partition("=")[0] == option)
    value = given[at].partition("=")[2]
    if not value and at + 1 < len(given) and not given[at + 1].startswith("--"):
        value = given[at + 1]
    return f"{name}={value or 'VALUE'}"
