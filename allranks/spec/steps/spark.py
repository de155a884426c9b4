"""A step that runs a Spark application: a component's, or one that stands on the step itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.spec import schema, settings
from allranks.spec.component_kinds import SparkComponent
from allranks.spec.model import Data, Output, Step
from allranks.spec.read_spark import check_executors, check_mode, check_places, read_spark, with_application
from allranks.spec.section import Section
from allranks.spec.steps.kind import FindComponent, StepReader, bare_step, inline_step


class _SparkReader(StepReader):
    def read(self, section: Section, name: str, find: FindComponent) -> Step:
        """Read either form; what a step says of a component's application replaces what that says."""
        is_inline = "component" not in section
        section.known(
            schema.INLINE_SPARK_STEP if is_inline else self.keys, self.noun, self.ignored, is_open=not is_inline
        )
        check_places(section)
        resources = settings.read_resources(section, strict=False)
        if is_inline:
            step = inline_step(section, name, read_spark(section, name), self.name)
        else:
            component = self._component(section, name, find)
            if not isinstance(component, SparkComponent):
                return replace(bare_step(section, name), compute=settings.read_compute(section), resources=resources)
            step = replace(
                bare_step(section, name),
                component=with_application(component, section),
                compute=settings.read_compute(section),
                display_name=section.text("display_name"),
                kind=self.name,
            )
        _check_modes(section, step)
        if isinstance(step.component, SparkComponent):
            check_executors(step.component, section)
        return replace(step, resources=resources)


def _check_modes(section: Section, step: Step) -> None:
    """Note what a step gives in place with another mode than direct."""
    given: dict[str, Data | Output] = {
        f"inputs.{name}": value for name, value in step.inputs.items() if isinstance(value, Data)
    }
    given |= {f"outputs.{name}": value for name, value in step.outputs.items() if isinstance(value, Output)}
    declared: Mapping[str, str | None] = {
        **{f"inputs.{name}": one.mode for name, one in step.component.inputs.items()},
        **{f"outputs.{name}": one.mode for name, one in step.component.outputs.items()},
    }
    for where, value in MappingProxyType(given).items():
        mode = value.mode or declared.get(where)
        if "${{" not in (value.path or ""):
            check_mode(section, where, mode)


SPARK_READER = _SparkReader(
    name="spark",
    keys=schema.SPARK_STEP,
    noun="a Spark step",
    ignored={"code": "the component's own counts."},
    component_type=SparkComponent,
    without_component=" and no 'entry'",
)
