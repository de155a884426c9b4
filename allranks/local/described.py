"""The environments and the data that a document names, looked up among what describes them on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from allranks import catalogue
from allranks.errors import Problem, SpecError, UsageError
from allranks.local.assets import CloudStandIns
from allranks.local.plan import PlannedStep
from allranks.local.settings import all_steps
from allranks.spec import Component, Data, Pipeline


def with_environment_files(
    steps: Mapping[str, PlannedStep], stands: CloudStandIns, chosen: Collection[str] = ()
) -> dict[str, PlannedStep]:
    """The steps, with the YAML of each environment that is named and found here; not of those in ``chosen``.

    Raises:
        SpecError: an environment could be two files.
    """
    found, problems = {}, []
    for name, step in steps.items():
        looked = step.component if name in chosen else _look_up_environment(step.component, stands)
        if isinstance(looked, Problem):
            problems.append(looked)
        else:
            found[name] = replace(step, component=looked)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return found


def _look_up_environment(component: Component, stands: CloudStandIns) -> Component | Problem:
    environment = component.environment
    if environment.reference is None or catalogue.environment_of(environment.reference) is not None:
        return component
    try:
        file = stands.find_environment(environment.reference)
    except UsageError as error:
        return component.source.problem("environment", error.message, error.hint, "elsewhere")
    return component if file is None else replace(component, environment=replace(environment, file=file))


def asset_problems(document: Component | Pipeline, stands: CloudStandIns) -> list[Problem]:
    """Look up all environments and data that a document names, and say of which it is known that they cannot be had."""
    steps = all_steps(document) if isinstance(document, Pipeline) else []
    components = (one for one in [document, *(step.component for _, step in steps)] if isinstance(one, Component))
    looked = [_look_up_environment(one, stands) for one in components]
    found = [*_data_problems(document, stands), *(one for one in looked if isinstance(one, Problem))]
    return list(dict.fromkeys(found))


def _data_problems(document: Component | Pipeline, stands: CloudStandIns) -> Iterator[Problem]:
    for where, path in _data_paths(document):
        try:
            if path.startswith("azureml:"):
                stands.find(path)
        except UsageError as error:
            yield document.source.problem(where, error.message, error.hint, "elsewhere")


def _data_paths(document: Component | Pipeline) -> Iterator[tuple[str, str]]:
    """The paths that a document gives to inputs, each with its place."""
    for name, declared in document.inputs.items():
        if isinstance(declared.default, Data):
            yield f"inputs.{name}", declared.default.path
    for step in document.steps.values() if isinstance(document, Pipeline) else ():
        for name, value in step.inputs.items():
            if isinstance(value, Data):
                yield f"jobs.{step.name}.inputs.{name}", value.path
