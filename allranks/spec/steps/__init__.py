"""The kinds of steps that run here, one line for each; one that does more has a file. And what is said of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.spec import schema, settings
from allranks.spec.model import Pipeline, Step
from allranks.spec.section import Section
from allranks.spec.steps.command import COMMAND_READER
from allranks.spec.steps.if_else import IF_ELSE_READER
from allranks.spec.steps.kind import FindComponent, StepReader, bare_step
from allranks.spec.steps.parallel import PARALLEL_READER
from allranks.spec.steps.sweep import SWEEP_READER
from allranks.spec.suggest import did_you_mean, nearest_hint

_INSIDE = dict.fromkeys(schema.COMPONENT_STEP | schema.SWEEP_STEP, "write it on the steps of the inner pipeline.")
PIPELINE_READER = StepReader("pipeline", schema.PIPELINE_STEP, "a pipeline step", _INSIDE, component_type=Pipeline)
STEP_KINDS: Mapping[str, StepReader] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            COMMAND_READER,
            IF_ELSE_READER,
            PARALLEL_READER,
            PIPELINE_READER,
            SWEEP_READER,
        )
    }
)


def read_step(section: Section, name: str, find: FindComponent) -> Step:
    """Read one step; one that cannot run here gets a component without a name: only bindings are checked."""
    type_ = _step_type(section)
    if kind := STEP_KINDS.get(type_):
        return kind.read(section, name, find)
    step = bare_step(section, name)
    if type_ in schema.CLOUD_ONLY_TYPES:
        message = f"cannot run here: step '{name}' is of type '{type_}', which allranks neither runs nor checks."
        hint = "Take the step out, or send the pipeline with `az ml job create` or azure-ai-ml."
        section.wrong("type", message, hint, "elsewhere")
    elif type_ == "component":
        section.wrong("type", "'component' is a type of the preview of Azure ML v2.", "Write type: command.")
    else:
        section.wrong("type", f"'{type_}' is no type of a step.", type_hint(type_, STEP_KINDS, "types"))
    return replace(
        step, resources=settings.read_resources(section, strict=False), compute=settings.read_compute(section)
    )


def _step_type(section: Section) -> str:
    """Tell the type of a step, which its keys imply where it is not written."""
    if "type" in section:
        return section.text("type").lower()
    inline = section.data.get("component")
    if isinstance(inline, dict):
        return PIPELINE_READER.name if "jobs" in inline else COMMAND_READER.name
    return SWEEP_READER.name if SWEEP_READER.component_key in section else COMMAND_READER.name


def type_hint(type_: str, choices: Iterable[str], plural: str) -> str:
    """Write the hint for an unknown type: the nearest of all that Azure ML has, else those that run here."""
    return nearest_hint(type_, (*choices, *sorted(schema.CLOUD_ONLY_TYPES))) or did_you_mean(type_, choices, plural)
