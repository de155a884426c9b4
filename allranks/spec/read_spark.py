"""Spark components and jobs, and what they have in common with a Spark application that is written on a step.

The rules are those of ``ParameterizedSparkSchema`` and ``spark_helpers.py`` in azure-ai-ml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.errors import Problem
from allranks.spec import ports, schema, settings
from allranks.spec.component_kinds import SparkComponent
from allranks.spec.document import yaml_kind
from allranks.spec.model import Data
from allranks.spec.section import Section, shown_value
from allranks.spec.standalone import job_name
from allranks.spec.suggest import nearest_hint
from allranks.spec.value_kinds import NO_VALUE

FILE_LISTS = ("py_files", "jars", "files", "archives")
_VERSION = re.compile(r"\d+(\.\d+)*")
_SHORT = {  # the SDK takes these for the names that Spark has
    "driver_cores": "spark.driver.cores",
    "driver_memory": "spark.driver.memory",
    "executor_cores": "spark.executor.cores",
    "executor_memory": "spark.executor.memory",
    "executor_instances": "spark.executor.instances",
    "dynamic_allocation_enabled": "spark.dynamicAllocation.enabled",
    "dynamic_allocation_min_executors": "spark.dynamicAllocation.minExecutors",
    "dynamic_allocation_max_executors": "spark.dynamicAllocation.maxExecutors",
}
_DYNAMIC, _LEAST, _MOST = list(_SHORT.values())[5:]
_INSTANCES = _SHORT["executor_instances"]
_NEEDED = list(_SHORT.values())[:4]


def read_spark_document(top: Section, name: str) -> SparkComponent:
    """Read a component, or a Spark job as one whose inputs have their values as defaults."""
    is_job = "sparkjob" in top.text("$schema").lower() or bool(top.data.keys() & {"resources", "compute"})
    if is_job:
        top.known(schema.SPARK_JOB, "a Spark job")
        settings.check_identity(top)
    else:
        top.known(schema.SPARK_COMPONENT, "a Spark component", is_open=True)
    read_inputs = ports.read_valued_inputs if is_job else ports.read_declared_inputs
    component = read_spark(top, job_name(top) if is_job else name)
    inputs = read_inputs(top.mapping("inputs"))
    outputs = ports.read_outputs(top.mapping("outputs"), schema.JOB if is_job else schema.COMPONENT)
    if is_job:
        check_places(top)
        check_executors(component, top)
        for port, one in inputs.items():
            if isinstance(one.default, Data):
                check_mode(top, f"inputs.{port}", one.default.mode or one.mode)
        for port, output in outputs.items():
            check_mode(top, f"outputs.{port}", output.mode)
    return replace(component, inputs=MappingProxyType(inputs), outputs=MappingProxyType(outputs))


def read_spark(section: Section, name: str) -> SparkComponent:
    """Read what a component, a job and an inline application have in common: all but inputs and outputs."""
    component = SparkComponent(
        **settings.read_asset(section, name),
        code=settings.read_code(section),
        includes=settings.read_includes(section),
        environment=settings.read_environment(section),
    )
    if section.data.get("environment") == "":
        section.wrong("environment", "is empty; Azure ML refuses this.", "Leave the key out.")
    if "entry" not in section:
        section.wrong("", "states no entry.", "Write entry: {file: main.py}.")
    return with_application(component, section)


def with_application(component: SparkComponent, section: Section) -> SparkComponent:
    """The component with what a section says of the application, which on a step replaces the component's own."""
    found: dict[str, object] = {key: _files(section, key) for key in FILE_LISTS if key in section}
    if "args" in section:
        found["command"] = section.text("args")
    if "conf" in section:
        written = section.texts("conf")
        for key in (key for key, value in section.mapping("conf").data.items() if value is None):
            section.wrong(f"conf.{key}", NO_VALUE, "Leave the key out.")
        found["conf"] = MappingProxyType({_SHORT.get(key, key): value for key, value in written.items()})
    if "entry" in section:
        entry = section.mapping("entry")
        entry.known({"file", "class_name"}, "an entry")
        if "class_name" in entry:
            entry.wrong("class_name", "Azure ML runs no class of a jar.", "Write file: main.py.")
        elif not entry.text("file"):
            entry.wrong("", "states no file.", "Write entry: {file: main.py}.")
        found["entry"] = entry.text("file")
    return replace(component, **found)  # type: ignore[arg-type]


def _files(section: Section, key: str) -> tuple[str, ...]:
    for index, item in enumerate(section.items(key)):
        if not isinstance(item, str):
            section.wrong(f"{key}.{index}", f"is a {yaml_kind(item)}, and should be the path of a file.")
    items = [str(item) for item in section.items(key)]
    if len(set(items)) < len(items):
        section.wrong(key, "has a file twice; Azure ML refuses this.")
    return tuple(items)


def check_places(section: Section) -> None:
    """Note where a step or a job runs in none or two places; each has its compute or its resources."""
    if "compute" in section and "resources" in section:
        section.wrong("resources", "stands beside 'compute'; Spark has one of both.", "Take one of them out.")
    elif "compute" not in section and "resources" not in section:
        hint = "Write resources: {instance_type: standard_e4s_v3, runtime_version: '3.4'}."
        section.wrong("", "has neither 'compute' nor 'resources'.", hint)
    if "resources" not in section:
        return
    resources = section.mapping("resources")
    resources.known({"instance_type", "runtime_version"}, "the resources of Spark")
    for key in ("instance_type", "runtime_version"):
        if key not in resources:
            resources.wrong("", f"states no {key}; Spark on Azure ML needs one.")
    version = resources.text("runtime_version")
    if version and not _VERSION.fullmatch(version) and "${{" not in version:
        resources.wrong("runtime_version", f"{shown_value(version)} is no version.", "Write runtime_version: '3.4'.")
    size = resources.text("instance_type")
    if size and size.lower() not in schema.SPARK_SIZES and "${{" not in size:
        choices = ", ".join(schema.SPARK_SIZES)
        resources.wrong("instance_type", f"{shown_value(size)} is no machine for Spark; these are: {choices}.")


def check_mode(section: Section, where: str, mode: str | None) -> None:
    """Note another mode than direct: Spark reads and writes storage itself (``spark_helpers.py`` in azure-ai-ml)."""
    if mode != "direct":
        message = f"has the mode '{mode}', and Spark takes direct only." if mode else "states no mode."
        section.wrong(where, message, "Write mode: direct.")


def check_spark(component: SparkComponent) -> Iterator[Problem]:
    """Check that the entry of an application is there."""
    source, code = component.source, component.code
    if component.entry and code is not None and code.is_dir() and not (code / component.entry).is_file():
        hint = nearest_hint(component.entry, (path.name for path in code.glob("*.py")))
        yield source.problem("entry.file", f"there is no file '{component.entry}' in '{code}'.", hint)


def check_executors(component: SparkComponent, section: Section) -> None:
    """Note what a step or a job has not said of its driver and executors, which are counted in one of two ways."""
    conf = component.conf
    is_dynamic = conf.get(_DYNAMIC, "").lower() == "true"
    needed = [*_NEEDED, *((_LEAST, _MOST) if is_dynamic else (_INSTANCES,))]
    if missing := [key for key in needed if not conf.get(key)]:
        how = "with" if is_dynamic else "without"
        section.wrong("conf", f"lacks {', '.join(missing)}, which Spark needs {how} dynamic allocation.")
    if not is_dynamic:
        for key in (key for key in (_LEAST, _MOST) if key in conf):
            section.wrong("conf", f"has {key} without {_DYNAMIC}: true.")
        return
    least, most, instances = (_number(conf, key) for key in (_LEAST, _MOST, _INSTANCES))
    if least is None or most is None:
        return
    if not 0 < least <= most:
        section.wrong("conf", f"lets {least} to {most} executors run: from 1, the least not above the most.")
    elif instances and not least <= instances <= most:
        section.wrong("conf", f"{_INSTANCES} is {instances}, which is not from {least} to {most}.")


def _number(conf: Mapping[str, str], key: str) -> int | None:
    text = conf.get(key, "")
    return int(text) if text.isdigit() else None
