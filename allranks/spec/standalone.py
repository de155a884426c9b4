"""Jobs that are no part of a pipeline: the name of a command job, and a sweep job as a pipeline of one step."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from allranks.spec import ports, schema, settings
from allranks.spec.distribution import DISTRIBUTION_KINDS
from allranks.spec.model import NO_TEXTS, Pipeline
from allranks.spec.section import Section


def job_name(top: Section) -> str:
    """What to call the one step of a job: its name, display name or file, as the name of a step.

    On Azure ML a job without a name gets one that means nothing.
    """
    file = top.source.file
    for text in (top.text("name"), top.text("display_name"), file.stem if file else ""):
        name = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:255]
        if name:
            return f"job_{name}" if name[0].isdigit() else name
    return "job"


def is_no_job(top: Section, type_: str) -> bool:
    """Note a job that can only be a step: the SDK makes no job of its type (``Job._resolve_cls_and_type``)."""
    inputs = top.data.get("inputs")
    values = inputs.values() if isinstance(inputs, dict) else ()
    given = any(not isinstance(one, dict) or "path" in one for one in values)
    if top.where or type_ not in _STEPS_ONLY or not (given or top.data.keys() & {"compute", "experiment_name"}):
        return False
    message = f"is a {type_} job by itself; Azure ML takes one as a step of a pipeline only."
    top.wrong("type", message, f"Write it below jobs: in a file of type: pipeline; a {type_} component needs no job.")
    return True


def sweep_job(top: Section) -> Section:
    """A sweep job's document as that of a pipeline whose one step is the sweep, each line at its place."""
    top.known(schema.SWEEP_JOB, "a sweep job")
    name, data = job_name(top), top.data
    trial = data.get("trial")
    inputs, outputs = top.mapping("inputs").data, top.mapping("outputs").data
    step: dict[str, Any] = {key: data[key] for key in schema.SWEEP_STEP & data.keys() - _OF_THE_JOB}
    step |= {"type": "sweep", "inputs": _bound("inputs", inputs), "outputs": _bound("outputs", outputs)}
    if isinstance(trial, dict) and "component" not in trial:
        own = {key: value for key, value in trial.items() if key != "environment_variables"}
        own |= _strict_parts(top.mapping("trial"))
        valued = ports.read_valued_inputs(Section(dict(inputs), "inputs", top.source, []))
        declared = {port: {"type": one.type, "optional": one.default is None} for port, one in valued.items()}
        promised = {port: {"type": _type(one)} for port, one in outputs.items()}
        step["trial"] = {"type": "command", "name": name, "inputs": declared, "outputs": promised, **own}
    lines = {f"jobs.{name}.{place}": line for place, line in top.source.lines.items()}
    source = replace(top.source, lines=MappingProxyType({**lines, **top.source.lines}))
    kept = {key: data[key] for key in schema.PIPELINE_KEYS & data.keys()}
    return Section({**kept, "type": "pipeline", "name": name, "jobs": {name: step}}, top.where, source, top.problems)


def with_variables(pipeline: Pipeline, top: Section) -> Pipeline:
    """The pipeline of a sweep job, with the environment variables that the job's trial sets."""
    trial = top.mapping("trial") if isinstance(top.data.get("trial"), dict) else None
    variables = NO_TEXTS if trial is None else settings.read_variables(trial)
    steps = {name: replace(step, environment_variables=variables) for name, step in pipeline.steps.items()}
    return replace(pipeline, steps=MappingProxyType(steps))


def _strict_parts(trial: Section) -> dict[str, Any]:
    """The parts of a trial of which Azure ML knows every key, though in a component it ignores others."""
    distributions = {key for kind in DISTRIBUTION_KINDS.values() for key in kind.keys}
    keys = {"resources": schema.RESOURCE_KEYS, "distribution": distributions | {"type"}}
    parts = {key: trial.mapping(key) for key in keys if isinstance(trial.data.get(key), dict)}
    trial.known(schema.TRIAL, "a trial")
    for key, part in parts.items():
        part.known(keys[key], f"a trial's {key}")
    return {key: part.data for key, part in parts.items()}


_STEPS_ONLY = ("parallel",)
_OF_THE_JOB = frozenset({"type", "name", "display_name", "description", "tags", "inputs", "outputs", "compute"})


def _bound(kind: str, names: dict[str, Any]) -> dict[str, str]:
    return {name: f"${{{{parent.{kind}.{name}}}}}" for name in names}


def _type(output: object) -> str:
    return str(output.get("type") or "uri_folder") if isinstance(output, dict) else "uri_folder"
