"""The walk through a document and the component files that it names; ``read.py`` has the public functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from allranks.errors import Problem, SpecError, UsageError
from allranks.spec import ports, schema, settings
from allranks.spec.borrow import resolve_borrowed_inputs
from allranks.spec.budget import current_budget
from allranks.spec.check_machines import LOW_PRIORITY, LOW_PRIORITY_HINT, is_low_priority
from allranks.spec.document import read_yaml, yaml_kind
from allranks.spec.inline import infer_port_types
from allranks.spec.model import DATA_TYPES, Component, Input, Pipeline, Settings, Step
from allranks.spec.read_command import read_command_document
from allranks.spec.read_parallel import read_parallel_document
from allranks.spec.section import Section, a_or_an, is_address
from allranks.spec.spelling import declared_spelling, respell_bindings, respell_steps
from allranks.spec.standalone import is_no_job, sweep_job, with_variables
from allranks.spec.steps import read_step, type_hint
from allranks.spec.suggest import did_you_mean, nearest_hint

FileResolver: TypeAlias = Callable[[str], Path | None]
"""Finds the file of a component that is named otherwise than by its path, or returns None; UsageError if it is two."""


class DocumentReader:
    """Reads one document and the component files that it names, each once."""

    def __init__(self, resolve: FileResolver | None = None) -> None:
        self._resolve = resolve or (lambda _reference: None)
        self._problems: list[list[Problem]] = []  # one list for each file
        self._open: list[Path] = []  # the files being read, outermost first
        self._files: dict[Path, Component | Pipeline | None] = {}
        self._totals: dict[int, tuple[Mapping[str, Step], int]] = {}  # by the id of a pipeline's steps

    def problems(self) -> list[Problem]:
        """List what is wrong so far, in the order of the files and of reading, without repetitions."""
        return list(dict.fromkeys(problem for problems in self._problems for problem in problems))

    def document(self, top: Section, kind: type[Component | Pipeline] | None = None) -> Component | Pipeline | None:
        """Read a file's document, or one from memory, which has to be a ``kind``."""
        self._problems.append(top.problems)
        file = top.source.file
        self._open += [file] if file else []
        found = self._component_or_pipeline(top, top.text("name"))
        if file:
            self._open.pop()
        if found is None:
            return None
        if kind and not isinstance(found, kind):
            top.wrong("", f"is a {found.noun}; a {kind.noun} is wanted.")
            return None
        warnings = tuple(problem for problem in top.problems if problem.severity == "warning")
        return replace(found, source=replace(found.source, problems=warnings))

    def _component_or_pipeline(self, top: Section, name: str) -> Component | Pipeline | None:
        if _is_schedule(top):
            message = "cannot run here: a schedule, which starts its job on Azure; allranks neither runs nor checks it."
            hint = "Run its job by itself, and make the schedule with `az ml schedule create`."
            top.wrong("", message, hint, "elsewhere")
            return None
        type_ = top.text("type") or ("pipeline" if "jobs" in top else "command" if "command" in top else "")
        if type_ == "pipeline" or "jobs" in top:
            _check_pipeline_type(top, type_)
            return self._pipeline(top, name)
        if top.data.get("type") == "":
            top.wrong("type", "is empty.", "Write type: command, for example.")
            return None
        is_job = "commandjob" in str(top.data.get("$schema")).lower()  # there the SDK wants the type as it is
        if type_ == "command" or (type_.lower() == "command" and not is_job):
            return read_command_document(top, name)
        if is_no_job(top, type_):
            return None
        if type_ == "parallel":
            return read_parallel_document(top, name)
        if type_ == "sweep" and not top.where:
            rewritten = sweep_job(top)
            pipeline = self._pipeline(rewritten, rewritten.text("name"))
            return None if pipeline is None else replace(with_variables(pipeline, top), kind=schema.EITHER)
        if is_low_priority(top.data.get("tier") or top.data.get("vm_priority")):
            top.wrong("tier" if "tier" in top else "vm_priority", LOW_PRIORITY, LOW_PRIORITY_HINT)
        elif asset := _asset_kind(top, type_):
            what = "; `allranks register` sends it with its components" if asset == "environment" else ""
            top.wrong(
                "", f"is {a_or_an(asset)} asset, which is not run or checked by itself{what}.", severity="elsewhere"
            )
        elif not type_ and "promptflow" in str(top.data.get("$schema")).lower():
            top.wrong("", "cannot run here: it is a prompt flow.", severity="elsewhere")
        elif not type_:
            top.wrong("", "has neither 'jobs' nor 'command', so it is no pipeline and no command component.")
        elif type_ in schema.CLOUD_ONLY_TYPES:
            message = f"cannot run here: a component of type '{type_}', which allranks neither runs nor checks."
            top.wrong("type", message, severity="elsewhere")
        else:
            hint = type_hint(type_, ("command", "parallel", "pipeline", "sweep"), "types that run here")
            top.wrong("type", f"'{type_}' is the type of no component or pipeline.", hint)
        return None

    def _pipeline(self, top: Section, name: str) -> Pipeline | None:
        kind = _pipeline_kind(top)
        keys = schema.PIPELINE_JOB if kind == schema.JOB else schema.PIPELINE_KEYS
        noun = "a pipeline job" if kind == schema.JOB else "a pipeline"
        top.known(keys, noun, is_open=kind == schema.COMPONENT, needed={"name", "jobs"})
        if kind != schema.COMPONENT:
            settings.check_cloud_keys(top)
        inputs = ports.read_valued_inputs(top.mapping("inputs"), kind)
        if "component" in top and "jobs" not in top:
            return self._job_of_component(top, inputs)
        if "component" in top:
            message = "stands beside 'jobs', and Azure ML refuses a job with both."
            top.wrong("component", message, "Take one of them out.")
        jobs = top.mapping("jobs")
        if not jobs.data:
            top.wrong("jobs" if "jobs" in top else "", "has no steps.", "A pipeline lists its steps below 'jobs'.")
        jobs = respell_bindings(jobs, inputs)
        read = respell_steps(jobs, {name: read_step(jobs.mapping(name), name, self._referenced) for name in jobs})
        if (total := self._count_steps(read)) > (most := current_budget()).steps:
            message = f"has {total:,} steps with those of its nested pipelines; at most {most.steps:,} are read."
            jobs.wrong("", message, f"Split it into several pipelines. {most.how_to_raise('steps')}")
            return None
        pipeline = Pipeline(
            name=name,
            source=replace(top.source, prefix=top.where, problems=()),
            version=settings.read_version(top),
            display_name=top.text("display_name"),
            description=top.text("description"),
            experiment_name=top.text("experiment_name"),
            tags=MappingProxyType(top.texts("tags")),
            inputs=MappingProxyType(inputs),
            outputs=MappingProxyType(ports.read_outputs(top.mapping("outputs"), kind)),
            kind=kind,
            steps=MappingProxyType(resolve_borrowed_inputs(read)),
            settings=_settings(top),
        )
        written = top.mapping("inputs").data.items()
        bare = {one for one, value in written if not isinstance(value, (dict, list, type(None)))}
        return infer_port_types(pipeline, bare)

    def _count_steps(self, steps: Mapping[str, Step]) -> int:
        """Number of steps with those of nested pipelines; each file's are counted once, however often it is named."""
        total = 0
        for step in steps.values():
            component = step.component
            if isinstance(component, Pipeline):
                inner = component.steps
                if id(inner) not in self._totals:
                    self._totals[id(inner)] = inner, self._count_steps(inner)  # kept, so that its id stays its own
                total += self._totals[id(inner)][1]
            else:
                total += 1
        return total

    def _job_of_component(self, top: Section, values: Mapping[str, Input]) -> Pipeline | None:
        """Read a pipeline job that runs a pipeline component: the component's steps with the job's values."""
        component = self._referenced(top, "component", top.text("name"))
        if isinstance(component, Component):
            top.wrong("component", "is a command component; a pipeline job runs a pipeline component.")
        if not isinstance(component, Pipeline):
            return None
        declared = dict(component.inputs)
        for written, value in values.items():
            name = declared_spelling(written, declared) or written
            if name not in declared:
                hint = did_you_mean(name, declared, "inputs")
                top.wrong(f"inputs.{name}", f"the pipeline component has no input '{name}'.", hint)
            elif value.default != "" or not declared[name].optional:  # the SDK does not send an optional empty text
                declared[name] = replace(declared[name], default=value.default)
        name = top.text("name") or component.name
        return replace(
            component, name=name, inputs=MappingProxyType(declared), settings=_settings(top), kind=schema.JOB
        )

    def _referenced(self, section: Section, key: str, name: str) -> Component | Pipeline | None:
        """Read the component that ``key`` holds or names; ``name`` is for one that has none."""
        value = section.data[key]
        if isinstance(value, dict):
            inner = section.mapping(key)
            found = self._component_or_pipeline(inner, inner.text("name") or name)
            if isinstance(found, Pipeline) and section.source.file is not None:
                section.wrong(key, "Azure ML takes a nested pipeline from a file only.", severity="warning")
            return found
        if not isinstance(value, str):
            section.wrong(key, f"is a {yaml_kind(value)}, and should be a file, a name or a mapping.")
            return None
        path = self._find(section, key, value)
        found = None if path is None else self._file(section, key, path)
        return replace(found, name=name) if found is not None and not found.name else found

    def _find(self, section: Section, key: str, reference: str) -> Path | None:
        local = Path(section.local(reference))
        if not is_address(reference):
            if local.is_file():
                return local
            if reference.startswith("file:") or reference.endswith((".yml", ".yaml")) or "/" in reference:
                hint = nearest_hint(local.name, (path.name for path in local.parent.glob("*.y*ml")))
                section.wrong(key, f"there is no file '{reference}'.", hint)
                return None
        try:
            found = self._resolve(reference)
        except UsageError as error:  # it could be two files; for Azure ML it is one
            section.wrong(key, error.message, error.hint, "elsewhere")
            return None
        if found is None and is_address(reference):
            message = f"cannot run here: '{reference}' is registered in Azure, and not known here."
            section.wrong(key, message, f"Give its YAML with --map {reference}=PATH.", "elsewhere")
        elif found is None:
            message = f"'{reference}' is neither a file nor a component of the library."
            section.wrong(key, message, "See: allranks list.")
        return found

    def _file(self, section: Section, key: str, path: Path) -> Component | Pipeline | None:
        path = path.absolute()
        if path in self._open:
            chain = " -> ".join(file.name for file in [*self._open[self._open.index(path) :], path])
            section.wrong(key, f"a pipeline contains itself: {chain}.")
            return None
        if len(self._open) > (most := current_budget()).nested:
            message = f"more than {most.nested} pipelines are inside each other."
            section.wrong(key, message, f"Flatten some of them. {most.how_to_raise('nested')}")
            return None
        if path not in self._files:
            try:
                data, source = read_yaml(path)
            except SpecError as error:
                self._problems.append(list(error.problems))
                self._files[path] = None
            else:
                self._files[path] = self.document(Section(data, "", source, list(source.problems)))
        return self._files[path]


def _is_schedule(top: Section) -> bool:
    return not top.where and ("schedule.schema" in top.text("$schema") or {"trigger", "create_job"} <= top.data.keys())


def _check_pipeline_type(top: Section, type_: str) -> None:
    """Note a type that is not that of the document's ``jobs``; a file without one is a command for Azure ML."""
    if type_ != "pipeline":
        top.wrong("type", f"'{type_}' is not the type of a document with 'jobs'.", "Write type: pipeline.")
    elif not top.text("type") and not top.where and top.source.file is not None:
        top.wrong("", "states no type, and Azure ML refuses this.", "Write type: pipeline.")


def _asset_kind(top: Section, type_: str) -> str:
    """Return what kind of asset a document is, by its schema, type or keys; empty for none."""
    named = re.search(r"/(environment|data|model)\.schema", str(top.data.get("$schema")).lower())
    if named:
        return named[1]
    if type_ in DATA_TYPES and "path" in top:
        return "data" if type_ in ("uri_file", "uri_folder", "mltable") else "model"
    return "environment" if not type_ and top.data.keys() & {"image", "conda_file", "build"} else ""


def _pipeline_kind(top: Section) -> str:
    schema_name = str(top.data.get("$schema") or "").lower()
    if top.where or "pipelinecomponent.schema" in schema_name:
        return schema.COMPONENT
    is_job = "pipelinejob" in schema_name or "sweepjob" in schema_name
    return schema.JOB if is_job else schema.EITHER


_MOMENTS = {"on_init": "comes before all others", "on_finalize": "comes after all others, also where they fail"}


def _settings(top: Section) -> Settings:
    section = top.mapping("settings")
    section.known(schema.SETTINGS_KEYS, "settings", is_open=True)
    for key in ("default_compute", "default_datastore"):
        settings.check_resource_id(section, key)
    for key in ("on_init", "on_finalize"):
        if key in section:
            section.wrong(key, f"cannot run here: a step that {_MOMENTS[key]}.", severity="elsewhere")
    return Settings(
        section.text("default_compute") or settings.read_compute(top),
        section.flag("force_rerun"),
        section.flag("continue_on_step_failure"),
    )
