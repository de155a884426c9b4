"""A step that gives the files or rows of one input, a mini batch at a time, to a function of its entry script."""

from __future__ import annotations

from dataclasses import replace

from allranks.spec import schema, settings
from allranks.spec.document import yaml_kind
from allranks.spec.model import Step
from allranks.spec.parallel import ParallelComponent
from allranks.spec.read_parallel import check_input_data, read_parallel, read_parallel_settings, task_attributes
from allranks.spec.section import Section
from allranks.spec.steps.kind import FindComponent, StepReader, bare_step


class _ParallelReader(StepReader):
    def read(self, section: Section, name: str, find: FindComponent) -> Step:
        """Read a step with its task in place, or one that names a component and may change its settings."""
        if "component" not in section and ("task" in section or "component" not in section.data):
            step = _read_inline(section, name)
        else:
            step = super().read(section, name, find)
            if isinstance(step.component, ParallelComponent):
                step = replace(step, component=_changed(step.component, section))
        check_input_data(section, step.component)
        _check_variables(section)
        return step

    def with_limits(self, step: Step, section: Section) -> Step:  # noqa: ARG002 it has no time limit of its own
        return step


def _read_inline(section: Section, name: str) -> Step:
    """Read a step with its task in place; ``infer_port_types`` gives its component the inputs and outputs."""
    section.known(schema.PARALLEL_STEP - {"component"}, "a parallel step with a task")
    settings.check_cloud_keys(section)
    return replace(
        bare_step(section, name),
        component=read_parallel(section, name),
        environment_variables=settings.read_variables(section),
        compute=settings.read_compute(section),
        display_name=section.text("display_name"),
        is_inline=True,
        kind="parallel",
    )


def _check_variables(section: Section) -> None:
    """Note variables that are no texts, which Azure ML takes on other steps (``ParameterizedParallelSchema``)."""
    written = section.data.get("environment_variables")
    for name, value in written.items() if isinstance(written, dict) else ():
        if not isinstance(value, str):
            kind = yaml_kind(value)
            section.wrong(f"environment_variables.{name}", f"is a {kind}, and should be a text.", "Put it in quotes.")


def _changed(component: ParallelComponent, section: Section) -> ParallelComponent:
    """The component with the step's settings; a task on the step replaces the component's whole, as in the SDK."""
    changed = replace(component, settings=read_parallel_settings(section).over(component.settings))
    return replace(changed, **task_attributes(section)) if "task" in section else changed


PARALLEL_READER = _ParallelReader(
    name="parallel",
    keys=schema.PARALLEL_STEP,
    noun="a parallel step",
    component_type=ParallelComponent,
)
