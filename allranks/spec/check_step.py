"""Checks of one step: what it gives to its component's inputs, where its outputs go, and its own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from allranks.errors import Problem
from allranks.spec.check_command import check_counts, check_shm_size, check_spelling, check_workers
from allranks.spec.check_space import check_space
from allranks.spec.expressions import OF_STEP, Reference, faults, references, single
from allranks.spec.inline import output_type
from allranks.spec.model import Component, Data, Distribution, Input, Literal, Output, Pipeline, Source, Step
from allranks.spec.section import is_address, noun, shown
from allranks.spec.suggest import did_you_mean
from allranks.spec.values import check_command_values, check_value

_FOLDERS = frozenset({"uri_folder", "mltable", "mlflow_model", "triton_model"})
_SAME = "Make both optional, or neither."


def fits(given: str, wanted: str) -> bool:
    """Whether data of one type can go where another is wanted.

    Azure ML publishes no table of this; what is told here is a file for a folder and the reverse. A ``custom_model``
    and the older ``path`` may be either.
    """
    return not ((given == "uri_file" and wanted in _FOLDERS) or (given in _FOLDERS and wanted == "uri_file"))


def check_local(source: Source, where: str, data: Data, wanted: str) -> Iterator[Problem]:
    """Check that a local path exists, and is a file or a folder as wanted; addresses and bindings are passed over."""
    if is_address(data.path) or "${{" in data.path:
        return
    if not os.path.lexists(data.path):
        yield source.problem(where, f"there is no file or folder '{data.path}'.")
    elif not fits(f"uri_{(kind := 'folder' if Path(data.path).is_dir() else 'file')}", wanted):
        yield source.problem(where, f"'{data.path}' is a {kind}, and the input takes {noun(wanted)}.")


class StepCheck:
    """The check of one step of ``pipeline``, with the values of the pipeline's inputs that are known."""

    def __init__(self, pipeline: Pipeline, step: Step, known: Mapping[str, Literal | Data]) -> None:
        self._pipeline = pipeline
        self._step = step
        self._known = known
        self._source = pipeline.source
        self._values: dict[str, Literal | Data] = {}  # the inputs whose value is known before anything runs

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the step's wiring and settings."""
        step = self._step
        declared = step.component.inputs
        for name, value in step.inputs.items():
            if name in declared:
                yield from self._check_input(declared[name], value)
            else:
                message = f"there is no input '{name}' in '{step.component.name}'."
                yield self._wrong(f"inputs.{name}", message, did_you_mean(name, declared, "inputs"))
        yield from self._check_missing()
        yield from self._check_space()
        yield from self._check_outputs()
        yield from self._check_settings()
        yield from self._check_lost_memory()
        if isinstance(step.component, Component):
            for problem in check_command_values(step.component, self._values):
                yield self._wrong(problem.where, problem.message, problem.hint)

    def problems_without_component(self) -> Iterator[Problem]:
        """Yield what is wrong with the step of a component that is not known here: its bindings and its settings."""
        for name, value in self._step.inputs.items():
            yield from self._check_bindings(value, f"inputs.{name}")
        for name, output in self._step.outputs.items():
            yield from self._check_output(name, output, None)
        yield from self._check_settings()

    def _wrong(self, where: str, message: str, hint: str = "", severity: str = "error") -> Problem:
        return self._source.problem(f"jobs.{self._step.name}.{where}".rstrip("."), message, hint, severity)

    def _check_lost_memory(self) -> Iterator[Problem]:
        """Warn where a step's resources replace the component's, shm_size and all, as the SDK sends them."""
        step, written = self._step, f"jobs.{self._step.name}.resources"
        if self._source.place(written) not in self._source.lines or not isinstance(step.component, Component):
            return
        lost = step.component.resources.shm_size
        if lost is not None and step.resources.shm_size is None and step.component.source.file != self._source.file:
            message = f"these replace all of the component's resources, so its shm_size {lost} is lost on Azure ML."
            yield self._wrong("resources", message, f"Add shm_size: {lost}.", "warning")

    # Inputs

    def _check_input(self, declared: Input, value: Literal | Data) -> Iterator[Problem]:
        where = f"inputs.{declared.name}"
        text = _text(value)
        problems = list(self._check_bindings(value, where))
        yield from problems
        if not references(text):
            yield from self._check_given(declared, value, where)
        elif (reference := single(text)) is not None and not problems:
            yield from self._check_bound(declared, reference, where)

    def _check_bindings(self, value: Literal | Data, where: str) -> Iterator[Problem]:
        for fault in faults(_text(value)):
            yield self._wrong(where, fault)
        for reference in references(_text(value)):
            yield from self.check_reference(reference, where)

    def _check_given(self, declared: Input, value: Literal | Data, where: str, origin: str = "") -> Iterator[Problem]:
        typed = check_value(declared, value)
        if isinstance(typed, Problem):
            yield self._wrong(where, typed.message + origin, typed.hint)
            return
        self._values[declared.name] = typed
        if origin:
            return
        yield from check_spelling(self._source, f"jobs.{self._step.name}.{where}", declared)
        if isinstance(typed, Data):
            given = typed.type or declared.type
            if not fits(given, declared.type):
                yield self._other_type(where, f"is {noun(given)}, and the input takes {noun(declared.type)}")
            yield from check_local(self._source, f"jobs.{self._step.name}.{where}", typed, given)

    def _other_type(self, where: str, message: str) -> Problem:
        """Warn of data of another type: Azure ML mounts what the job says, and its own examples make use of that."""
        return self._wrong(where, f"{message}; the component is given what is there.", severity="warning")

    def check_reference(self, reference: Reference, where: str) -> Iterator[Problem]:
        """Check that what a binding of this step names is there."""
        pipeline = self._pipeline
        if reference.scope == "parent.inputs":
            if reference.name not in pipeline.inputs:
                message = f"{reference}: the pipeline has no input '{reference.name}'."
                yield self._wrong(where, message, did_you_mean(reference.name, pipeline.inputs, "inputs"))
        elif reference.scope == "parent.jobs":
            yield from self._check_job(reference, where)
        elif reference.scope == OF_STEP:
            yield from self._check_not_borrowed(reference, where)
        elif reference.scope == "search_space" and self._step.sweep is not None and where.startswith("inputs."):
            space = self._step.sweep.space
            if reference.name not in space:
                message = f"{reference}: the search space has no '{reference.name}'."
                yield self._wrong(where, message, did_you_mean(reference.name, space, "names"))
        elif reference.scope == "inputs":
            message = f"{reference} is for a command; a step binds the pipeline's inputs."
            yield self._wrong(where, message, f"Write ${{{{parent.inputs.{reference.name}}}}}.")
        elif not reference.scope and reference.name.startswith("jobs."):
            yield self._wrong(where, f"{reference} misses 'parent'.", f"Write ${{{{parent.{reference.name}}}}}.")
        else:
            hint = "Write ${{parent.inputs.NAME}} or ${{parent.jobs.STEP.outputs.NAME}}."
            yield self._wrong(where, f"{reference} means nothing in a step's inputs.", hint)

    def _check_job(self, reference: Reference, where: str) -> Iterator[Problem]:
        steps = self._pipeline.steps
        maker = steps.get(reference.step)
        if maker is None:
            message = f"{reference}: there is no step '{reference.step}'."
            yield self._wrong(where, message, did_you_mean(reference.step, steps, "steps"))
        elif maker.component.name and reference.name not in maker.component.outputs:
            message = f"{reference}: step '{reference.step}' has no output '{reference.name}'."
            yield self._wrong(where, message, did_you_mean(reference.name, maker.component.outputs, "outputs"))

    def _check_not_borrowed(self, reference: Reference, where: str) -> Iterator[Problem]:
        """Say why a value of another step could not be taken: where it can, it has been since the reading."""
        steps = self._pipeline.steps
        lender = steps.get(reference.step)
        if lender is None:
            message = f"{reference}: there is no step '{reference.step}'."
            yield self._wrong(where, message, did_you_mean(reference.step, steps, "steps"))
        elif reference.name in lender.inputs:
            yield self._wrong(where, f"{reference} leads back to itself.", "Write the value at one of the steps.")
        elif lender.component.name and reference.name not in lender.component.inputs:
            message = f"{reference}: step '{reference.step}' has no input '{reference.name}'."
            yield self._wrong(where, message, did_you_mean(reference.name, lender.component.inputs, "inputs"))
        elif lender.component.name:
            message = f"{reference}: step '{reference.step}' is given nothing there."
            yield self._wrong(where, message, f"Give step '{reference.step}' a value, or write one here.")

    def _check_bound(self, declared: Input, reference: Reference, where: str) -> Iterator[Problem]:
        if reference.scope == "parent.inputs":
            yield from self._check_parent(declared, self._pipeline.inputs[reference.name], where)
            return
        type_ = output_type(self._pipeline, reference)
        if type_ is None:
            return
        message = f"takes {noun(declared.type)}, and {reference} is {noun(type_)}"
        if Input(reference.name, type_).is_data != declared.is_data:
            yield self._wrong(where, f"{message}.")
        elif declared.is_data and not fits(type_, declared.type):
            yield self._other_type(where, message)

    def _check_parent(self, declared: Input, given: Input, where: str) -> Iterator[Problem]:
        """Check a binding to one of the pipeline's inputs: its type, and its value if that is known."""
        origin = f" It is the pipeline's input '{given.name}'."
        message = f"takes {noun(declared.type)}, and the pipeline's input '{given.name}' is {noun(given.type)}"
        if given.is_data != declared.is_data:
            yield self._wrong(where, f"{message}.")
        elif declared.is_data and not fits(given.type, declared.type):
            yield self._other_type(where, message)
        elif given.optional and not declared.optional and declared.default is None:
            missing = f"must have a value, and the pipeline's input '{given.name}' is optional."
            yield self._wrong(where, missing, _SAME)
        elif given.name in self._known:
            yield from self._check_given(declared, self._known[given.name], where, origin)
        elif not declared.is_data and not _literal_fits(given.type, declared.type):
            yield self._wrong(where, f"{message}.")
        if given.optional and not declared.optional and declared.default is not None:
            refused = f"is not optional, and the pipeline's input '{given.name}' is; Azure ML refuses this."
            yield self._wrong(where, refused, _SAME, "warning")

    def _check_missing(self) -> Iterator[Problem]:
        step = self._step
        searched = step.sweep.space if step.sweep else {}
        for name, declared in step.component.inputs.items():
            if name in step.inputs or name in searched:
                continue
            if declared.enum and declared.default is not None:
                if isinstance(typed := check_value(declared, declared.default), Problem):
                    yield self._wrong(f"inputs.{name}", f"the default {typed.message}", "Give a value here.")
            elif declared.required:
                near = did_you_mean(name, [one for one in step.inputs if one not in step.component.inputs], "inputs")
                hint = near if near.startswith("Did") else f"Write {name}: … below the step's inputs."
                message = f"the required input '{name}' ({declared.type}) is missing."
                yield self._wrong("inputs" if step.inputs else "", message, hint)

    def _check_space(self) -> Iterator[Problem]:
        if self._step.sweep is not None:
            for name, message, hint in check_space(self._step, self._step.sweep):
                yield self._wrong(f"search_space.{name}", message, hint)

    # Outputs and settings

    def _check_outputs(self) -> Iterator[Problem]:
        declared = self._step.component.outputs
        for name, value in self._step.outputs.items():
            if name in declared:
                yield from self._check_output(name, value, declared[name].type)
            else:
                message = f"there is no output '{name}' in '{self._step.component.name}'."
                yield self._wrong(f"outputs.{name}", message, did_you_mean(name, declared, "outputs"))

    def _check_output(self, name: str, value: Output | str, port: str | None) -> Iterator[Problem]:
        """Check where an output goes; ``port`` is its type in the component, None when that is not known."""
        where = f"outputs.{name}"
        if isinstance(value, Output):
            if value.type and port and not fits(value.type, port):
                message = f"is {noun(port)} of the component, and cannot become {noun(value.type)}."
                yield self._wrong(where, message)
            if value.path is None or single(value.path) is None:
                return
        reference = single(value.path if isinstance(value, Output) else value)
        if reference is None or reference.scope != "parent.outputs":
            message = f"{shown(value)} is no place for an output."
            yield self._wrong(where, message, "Write ${{parent.outputs.NAME}} or a mapping with mode and path.")
        elif reference.name not in self._pipeline.outputs:
            message = f"{reference}: the pipeline has no output '{reference.name}'."
            yield self._wrong(where, message, did_you_mean(reference.name, self._pipeline.outputs, "outputs"))
        else:
            wanted = self._pipeline.outputs[reference.name].type
            if port and wanted and not fits(port, wanted):
                message = f"is {noun(port)}, and the pipeline's output '{reference.name}' is {noun(wanted)}."
                yield self._wrong(where, message)

    def _check_settings(self) -> Iterator[Problem]:
        step = self._step
        source = replace(self._source, prefix=self._source.place(f"jobs.{step.name}"))
        yield from check_counts(source, step.distribution, step.resources, step.timeout)
        distribution, resources, timeout = step.distribution, step.resources, step.timeout
        nodes = resources.nodes
        if isinstance(step.component, Component):
            distribution = distribution or step.component.distribution
            nodes = step.component.resources.nodes if nodes is None else nodes
            if step.component.name:
                yield from check_workers(source, distribution, self._count(nodes))
        counts = distribution or Distribution("")
        yield from self._check_count("resources.instance_count", nodes)
        yield from self._check_count("distribution.process_count_per_instance", counts.processes_per_node)
        yield from self._check_count("distribution.worker_count", counts.worker_count)
        yield from self._check_count("limits.timeout", timeout)
        yield from self._check_texts(source)

    def _count(self, value: float | str | None) -> float | str | None:
        """Return a count, a binding resolved where the pipeline's value is known."""
        reference = single(value)
        if reference is None or reference.scope != "parent.inputs":
            return value
        known = self._known.get(reference.name)
        typed = None if known is None else check_value(Input(reference.name, "integer"), known)
        return typed if isinstance(typed, int) else value

    def _check_count(self, where: str, value: float | str | None) -> Iterator[Problem]:
        if not isinstance(value, str):
            return
        reference = single(value)
        if reference is None or reference.scope != "parent.inputs":
            yield self._wrong(where, f"'{value}' is no binding for a number.", "Write ${{parent.inputs.NAME}}.")
            return
        problems = list(self.check_reference(reference, where))
        yield from problems
        if problems:
            return
        given = self._pipeline.inputs[reference.name]
        origin = f" It is the pipeline's input '{given.name}'."
        if given.name in self._known:
            typed = check_value(Input(given.name, "integer", min=1), self._known[given.name])
            if isinstance(typed, Problem):
                yield self._wrong(where, typed.message + origin)
        elif given.type == "boolean" or given.is_data:
            yield self._wrong(
                where, f"takes an integer, and the pipeline's input '{given.name}' is {noun(given.type)}."
            )

    def _check_texts(self, source: Source) -> Iterator[Problem]:
        step = self._step
        texts = {
            "compute": step.compute,
            "resources.instance_type": step.resources.instance_type,
            "resources.shm_size": step.resources.shm_size,
            **{f"environment_variables.{name}": text for name, text in step.environment_variables.items()},
        }
        for where, text in texts.items():
            for reference in references(text or ""):
                if reference.scope == "parent.jobs":
                    yield self._wrong(where, f"{reference}: only the pipeline's inputs can stand here.")
                    continue
                problems = list(self.check_reference(reference, where))
                yield from problems
                known = self._known.get(reference.name) if reference.scope == "parent.inputs" else None
                if where == "resources.shm_size" and not problems and isinstance(known, str):
                    yield from check_shm_size(source, where, known)


def _text(value: Literal | Data) -> str:
    """Return the text of a value that may hold bindings; numbers and booleans have none."""
    text = value.path if isinstance(value, Data) else value
    return text if isinstance(text, str) else ""


def _literal_fits(given: str, wanted: str) -> bool:
    return wanted in (given, "string") or (given, wanted) == ("integer", "number")
