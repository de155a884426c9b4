"""The types of steps: what the YAML says or implies, and what is said of those that do not run here."""

from __future__ import annotations

from allranks.spec import schema
from allranks.spec.section import Section
from allranks.spec.suggest import did_you_mean, nearest


def step_type(section: Section) -> str:
    """Tell the type of a step, which its keys imply where it is not written."""
    if "type" in section:
        return section.text("type")
    inline = section.data.get("component")
    if isinstance(inline, dict):
        return "pipeline" if "jobs" in inline else "command"
    return "sweep" if "trial" in section else "command"


def refuse_type(section: Section, type_: str, name: str) -> None:
    """Note that a step of this type does not run here, or that there is no such type."""
    if type_ in schema.ELSEWHERE:
        message = f"cannot run here: step '{name}' is of type '{type_}'; command, pipeline and sweep steps can."
        section.wrong("type", message, "Take the step out, or submit the pipeline to Azure.", "elsewhere")
    elif type_ == "component":
        section.wrong("type", "'component' is a type of the preview of Azure ML v2.", "Write type: command.")
    else:
        section.wrong("type", f"'{type_}' is no type of a step.", did_you_mean_type(type_, schema.STEP_TYPES, "types"))


def did_you_mean_type(type_: str, choices: tuple[str, ...], plural: str) -> str:
    """Write the hint for an unknown type: the nearest of all that Azure ML has, else those that run here."""
    near = nearest(type_, (*choices, *sorted(schema.ELSEWHERE)))
    return f"Did you mean '{near}'?" if near else did_you_mean(type_, choices, plural)
