"""Parallel components, and the parts that they share with a task written on a step.

The keys and what is demanded of them are those of ParallelComponentSchema, PipelineParallelJobSchema and
ComponentParallelTaskSchema of azure-ai-ml; ``input_data`` and ``entry_script`` are required by Azure's reference alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from allranks.spec import ports, schema, settings
from allranks.spec.expressions import find_references, single_reference
from allranks.spec.model import Component, Pipeline
from allranks.spec.needs import CountOrBinding
from allranks.spec.parallel import LOGGING_LEVELS, ParallelComponent, ParallelSettings, TaskSource, batch_size
from allranks.spec.section import Section, shown_value
from allranks.spec.suggest import did_you_mean

_TASK_TYPES = ("run_function", "model", "function")
_BELOW_TASK = dict.fromkeys(("append_row_to", "program_arguments", "entry_script"), "it belongs below task.")
_ON_THE_STEP = {"environment_variables": "write it on the pipeline's step."}
_MOST_TIMEOUT = 259200  # seconds, from Azure's guide to parallel jobs
_RANGES = {
    "error_threshold": (-1, None),
    "mini_batch_error_threshold": (-1, None),
    "max_concurrency_per_instance": (1, None),
    "max_retries": (0, None),
    "timeout": (1, _MOST_TIMEOUT),
}


def read_parallel_document(top: Section, name: str) -> ParallelComponent:
    """Read a parallel component."""
    top.known(schema.PARALLEL_COMPONENT, "a parallel component", _BELOW_TASK | _ON_THE_STEP, is_open=True)
    component = read_parallel(top, name, is_open=True)
    return replace(
        component,
        inputs=MappingProxyType(ports.read_declared_inputs(top.mapping("inputs"))),
        outputs=MappingProxyType(ports.read_outputs(top.mapping("outputs"), schema.COMPONENT)),
    )


def read_parallel(section: Section, name: str, *, is_open: bool = False) -> ParallelComponent:
    """Read what a parallel component and a task on a step have in common: all but inputs and outputs.

    ``is_open``: whether Azure ML ignores unknown keys of its resources, as it does in a component.
    """
    asset = settings.read_asset(section, name)
    source = asset.pop("source")
    component = ParallelComponent(
        **asset,
        source=TaskSource(**{one.name: getattr(source, one.name) for one in fields(source)}),
        resources=settings.read_resources(section, is_open=is_open),
        settings=read_parallel_settings(section),
    )
    if "task" not in section:
        section.wrong("", "has no task.", "Write task: {type: run_function, code, entry_script, environment}.")
        return component
    return replace(component, **task_attributes(section))


def task_attributes(section: Section) -> dict[str, Any]:
    """What a component takes from its ``task``."""
    task = section.mapping("task")
    task.known(schema.PARALLEL_TASK, "a task", is_open=True)
    type_ = task.text("type").lower()
    if not type_:
        task.wrong("", "states no type.", "Write type: run_function.")
    elif type_ in _TASK_TYPES[1:]:
        task.wrong("type", f"cannot run here: a task of type '{type_}'; run_function can.", severity="elsewhere")
    elif type_ not in _TASK_TYPES:
        task.wrong("type", f"{shown_value(type_)} is no type of a task.", did_you_mean(type_, _TASK_TYPES, "types"))
    script = task.text("entry_script")
    if not script and type_ == "run_function":
        task.wrong("", "has no entry_script.", "Write entry_script: score.py, with init() and run(mini_batch) in it.")
    return {
        "command": task.text("program_arguments"),
        "code": settings.read_code(task),
        "environment": settings.read_environment(task),
        "entry_script": script,
        "append_row_to": _port(task, "append_row_to", "outputs") or "",
    }


def read_parallel_settings(section: Section) -> ParallelSettings:
    """Read what divides the input and what limits failures, of a component or of a step."""
    retry = section.mapping("retry_settings")
    retry.known({"max_retries", "timeout"}, "retry settings", is_open=True)
    numbers = ("error_threshold", "mini_batch_error_threshold", "max_concurrency_per_instance")
    return ParallelSettings(
        input_data=_port(section, "input_data", "inputs"),
        mini_batch_size=_size(section),
        **{key: _number(section, key) for key in numbers},
        max_retries=_number(retry, "max_retries"),
        timeout=_number(retry, "timeout"),
        logging_level=_logging_level(section),
        partition_keys=_keys(section),
    )


def check_input_data(section: Section, component: Component | Pipeline) -> None:
    """Note that nothing says which input is divided."""
    if isinstance(component, ParallelComponent) and component.name and not component.settings.input_data:
        hint = "Write input_data: ${{inputs.NAME}}, the input that is divided into mini batches."
        section.wrong("", "has no input_data.", hint)


def _port(section: Section, key: str, side: str) -> str | None:
    """The name of the one input or output that a key is bound to."""
    text = section.text(key)
    reference = single_reference(text)
    if not text or (reference is not None and reference.scope == side):
        return reference.name if reference else None
    section.wrong(key, f"{shown_value(text)} names no {side[:-1]}.", f"Write ${{{{{side}.NAME}}}}.")
    return None


def _size(section: Section) -> str | None:
    value = section.data.get("mini_batch_size")
    if isinstance(value, int):
        hint = f'Write mini_batch_size: "{value}".'
        section.wrong("mini_batch_size", f"{shown_value(value)} is not a text, and Azure ML refuses this.", hint)
        return str(value)
    text = section.text("mini_batch_size")
    if value is None or find_references(text):
        return text or None
    if not batch_size(text):
        hint = 'Write "10" for files, or "10kb", "1mb" for the rows of a table.'
        section.wrong("mini_batch_size", f"{shown_value(text)} is no size: digits and at most kb, mb or gb.", hint)
        return None
    return text


def _logging_level(section: Section) -> str | None:
    text = section.text("logging_level")
    return text if find_references(text) else section.choice("logging_level", LOGGING_LEVELS, "logging levels")


def _number(section: Section, key: str) -> CountOrBinding:
    value = section.whole(key)
    least, most = _RANGES[key]
    if isinstance(value, int) and least is not None and value < least:
        section.wrong(key, f"{value} is below the minimum of {least}.")
    elif isinstance(value, int) and most is not None and value > most:
        section.wrong(key, f"{value} is above the maximum of {most}.")
    else:
        return value
    return None


def _keys(section: Section) -> tuple[str, ...] | None:
    found: Iterable[Any] = section.items("partition_keys")
    if wrong := [one for one in found if not isinstance(one, str)]:
        section.wrong("partition_keys", f"{shown_value(wrong[0])} is not the name of a column.")
    return tuple(one for one in found if isinstance(one, str)) or None
