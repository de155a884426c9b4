"""Checks of one step: what it gives to its component's inputs, and where its outputs go."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allranks.errors import Problem
from allranks.spec.check_bindings import StepBindings
from allranks.spec.check_command import check_spelling
from allranks.spec.check_parallel import check_parallel_bindings
from allranks.spec.check_settings import check_settings
from allranks.spec.check_space import check_space
from allranks.spec.expressions import (
    Reference,
    bracket_faults,
    find_references,
    literal_text,
    replace_references,
    single_reference,
)
from allranks.spec.graph import input_text
from allranks.spec.inline import output_type
from allranks.spec.model import Component, Data, Input, Literal, Output, Source
from allranks.spec.section import a_or_an, is_address, shown_value
from allranks.spec.suggest import did_you_mean, nearest_hint
from allranks.spec.values import check_command_values, check_value

_FOLDERS = frozenset({"uri_folder", "mltable", "mlflow_model", "triton_model"})
_SAME = "Make both optional, or neither."
_EMPTY = "is an empty text, which Azure ML refuses for an input."


def check_local(source: Source, where: str, data: Data, wanted: str) -> Iterator[Problem]:
    """Check that a local path exists, and is a file or a folder as wanted; addresses and bindings are passed over."""
    if is_address(data.path) or "${{" in data.path:
        return
    if not os.path.lexists(data.path):
        yield source.problem(where, f"there is no file or folder '{data.path}'.")
        return
    kind, given = ("folder", "uri_folder") if Path(data.path).is_dir() else ("file", "uri_file")
    if not _fits(given, wanted):
        yield source.problem(where, f"'{data.path}' is a {kind}, and the input takes {a_or_an(wanted)}.")


def _fits(given: str, wanted: str) -> bool:
    """Whether data of one type can go where another is wanted.

    Azure ML publishes no table of this; what is told here is a file for a folder and the reverse. A ``custom_model``
    and the older ``path`` may be either.
    """
    return not ((given == "uri_file" and wanted in _FOLDERS) or (given in _FOLDERS and wanted == "uri_file"))


@dataclass(frozen=True, slots=True)
class StepCheck(StepBindings):
    """The check of one step of ``pipeline``, with the values of the pipeline's inputs that are known."""

    values: dict[str, Literal | Data] = field(default_factory=dict)  # the inputs whose value is known before it runs

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the step's wiring and settings; of a component that is not known here, less."""
        yield from self._check_inputs()
        yield from self._check_outputs()
        yield from self._check_branch()
        yield from check_settings(self)
        yield from check_parallel_bindings(self)
        if isinstance(self.step.component, Component):
            for problem in check_command_values(self.step.component, self.values):
                yield self.wrong(problem.where, problem.message, problem.hint)

    def _check_inputs(self) -> Iterator[Problem]:
        step, declared = self.step, self.step.component.inputs
        for name, value in step.inputs.items():
            if name in declared:
                yield from self._check_input(declared[name], value)
            elif step.has_component:
                yield self._unknown_port(f"inputs.{name}", "input", name, declared)
            else:
                yield from self._check_bindings(input_text(value), f"inputs.{name}")
        yield from self._check_missing()
        if step.sweep is not None:
            yield from check_space(self, step.sweep)

    def _check_input(self, declared: Input, value: Literal | Data) -> Iterator[Problem]:
        where = f"inputs.{declared.name}" if self.step.branch is None else declared.name
        text = input_text(value)
        problems = list(self._check_bindings(text, where))
        yield from problems
        if not find_references(text):
            yield from self._check_given(declared, value, where)
        elif (reference := single_reference(text)) is not None and not problems:
            yield from self._check_bound(declared, reference, where)
        elif reference is None and not problems and (composed := self._composed(text)) is not None:
            self.values[declared.name] = composed

    def _composed(self, text: str) -> str | None:
        """A text with the pipeline's inputs that it is made of; None where only the run knows one of them."""
        known = {reference: self.known.get(reference.name) for reference in find_references(text)}
        texts = {one: literal_text(value) for one, value in known.items() if not isinstance(value, Data | None)}
        is_known = texts.keys() == {one for one in known if one.scope == "parent.inputs"} == known.keys()
        return replace_references(text, texts.__getitem__) if is_known else None

    def _check_bindings(self, text: str, where: str) -> Iterator[Problem]:
        for fault in bracket_faults(text):
            yield self.wrong(where, fault)
        for reference in find_references(text):
            yield from self.check(reference, where, in_inputs=True)

    def _check_given(self, declared: Input, value: Literal | Data, where: str, origin: str = "") -> Iterator[Problem]:
        typed = check_value(declared, value)
        if isinstance(typed, Problem):
            yield self.wrong(where, typed.message + origin, typed.hint)
            return
        self.values[declared.name] = typed
        if typed == "" and declared.type == "string":
            yield self.wrong(where, _EMPTY + origin, "Write a text, or leave the input out.", "warning")
        if origin:
            return
        place = f"{self.place}.{where}"
        yield from check_spelling(self.pipeline.source, place, declared)
        if isinstance(typed, Data):
            given = typed.type or declared.type
            if not _fits(given, declared.type):
                yield self._other_type(where, f"is {a_or_an(given)}, and the input takes {a_or_an(declared.type)}")
            yield from check_local(self.pipeline.source, place, typed, given)

    def _other_type(self, where: str, message: str) -> Problem:
        """Warn of data of another type: Azure ML mounts what the job says, and its own examples make use of that."""
        return self.wrong(where, f"{message}; the component is given what is there.", severity="warning")

    def _check_bound(self, declared: Input, reference: Reference, where: str) -> Iterator[Problem]:
        if reference.scope == "parent.inputs":
            yield from self._check_parent(declared, self.pipeline.inputs[reference.name], where)
            return
        type_ = output_type(self.pipeline, reference)
        if type_ is None:
            return
        message = f"takes {a_or_an(declared.type)}, and {reference} is {a_or_an(type_)}"
        if Input(reference.name, type_).is_data > declared.is_data:  # a literal output for a data input is its file
            yield self.wrong(where, f"{message}.")
        elif declared.is_data and not _fits(type_, declared.type):
            yield self._other_type(where, message)

    def _check_parent(self, declared: Input, given: Input, where: str) -> Iterator[Problem]:
        """Check a binding to one of the pipeline's inputs: its type, and its value if that is known."""
        origin = f" It is the pipeline's input '{given.name}'."
        message = f"takes {a_or_an(declared.type)}, and the pipeline's input '{given.name}' is {a_or_an(given.type)}"
        if given.is_data != declared.is_data:
            yield self.wrong(where, f"{message}.")
        elif declared.is_data and not _fits(given.type, declared.type):
            yield self._other_type(where, message)
        elif given.optional and not declared.optional and declared.default is None:
            missing = f"must have a value, and the pipeline's input '{given.name}' is optional."
            yield self.wrong(where, missing, _SAME)
        elif given.name in self.known:
            yield from self._check_given(declared, self.known[given.name], where, origin)
        elif not declared.is_data and not _literal_fits(given.type, declared.type):
            yield self.wrong(where, f"{message}.")
        if given.optional and not declared.optional and declared.default is not None:
            refused = f"is not optional, and the pipeline's input '{given.name}' is; Azure ML refuses this."
            yield self.wrong(where, refused, _SAME, "warning")

    def _check_missing(self) -> Iterator[Problem]:
        step = self.step
        searched = step.sweep.space if step.sweep else {}
        for name, declared in step.component.inputs.items():
            if name in step.inputs or name in searched:
                continue
            if declared.enum and declared.default is not None:
                if isinstance(typed := check_value(declared, declared.default), Problem):
                    yield self.wrong(f"inputs.{name}", f"the default {typed.message}", "Give a value here.")
            elif declared.required and self.step.branch is None:  # its reader says what a condition can be
                hint = nearest_hint(name, sorted(step.inputs.keys() - step.component.inputs.keys()))
                message = f"the required input '{name}' ({declared.type}) is missing."
                hint = hint or f"Write {name}: … below the step's inputs."
                yield self.wrong("inputs" if step.inputs else "", message, hint)

    def _check_branch(self) -> Iterator[Problem]:
        """Check that the steps that a condition decides about are there."""
        branch, steps = self.step.branch, self.pipeline.steps
        for name, wanted in branch.targets.items() if branch else ():
            if name not in steps:
                where = "true_block" if wanted else "false_block"
                yield self.unknown(where, f"there is no step '{name}'.", name, steps, "steps")

    def _check_outputs(self) -> Iterator[Problem]:
        declared = self.step.component.outputs
        for name, value in self.step.outputs.items():
            if name in declared or not self.step.has_component:
                yield from self._check_output(name, value, declared[name].type if name in declared else None)
            else:
                yield self._unknown_port(f"outputs.{name}", "output", name, declared)

    def _unknown_port(
        self, where: str, kind: str, name: str, declared: Mapping[str, Input] | Mapping[str, Output]
    ) -> Problem:
        """Return the problem of a name that the component does not have.

        For azure-ai-ml that is no fault, and the value is lost; a trial written in place it refuses.
        """
        message = f"there is no {kind} '{name}' in '{self.step.component.name}'"
        if self.step.sweep is None:
            hint = did_you_mean(name, declared, f"{kind}s")
            return self.wrong(where, f"{message}; azure-ai-ml would send the step without it.", hint)
        hint = f"A trial written in place declares its own {kind}s: write {name} below trial, in {kind}s."
        if not self.step.component.source.prefix:
            hint = did_you_mean(name, declared, f"{kind}s")
        return self.wrong(where, f"{message}.", hint)

    def _check_output(self, name: str, value: Output | str, port: str | None) -> Iterator[Problem]:
        """Check where an output goes; ``port`` is its type in the component, None when that is not known."""
        where = f"outputs.{name}"
        reference = single_reference(value.path if isinstance(value, Output) else value)
        if isinstance(value, Output):
            if value.type and port and not _fits(value.type, port):
                # The SDK takes it, and a published pipeline of Azure's own registry has it; the service was not asked.
                is_tolerated = {value.type, port} == {"uri_file", "uri_folder"}
                message = f"is {a_or_an(port)} of the component, and cannot become {a_or_an(value.type)}."
                yield self.wrong(where, message, severity="warning" if is_tolerated else "error")
            if reference is None:
                return
        if reference is None or reference.scope != "parent.outputs":
            message = f"{shown_value(value)} is no place for an output."
            yield self.wrong(where, message, "Write ${{parent.outputs.NAME}} or a mapping with mode and path.")
        elif reference.name not in self.pipeline.outputs:
            message = f"{reference}: the pipeline has no output '{reference.name}'."
            yield self.unknown(where, message, reference.name, self.pipeline.outputs, "outputs")
        else:
            wanted = self.pipeline.outputs[reference.name].type
            if port and wanted and not _fits(port, wanted):
                message = f"is {a_or_an(port)}, and the pipeline's output '{reference.name}' is {a_or_an(wanted)}."
                yield self.wrong(where, message)


def _literal_fits(given: str, wanted: str) -> bool:
    return wanted in (given, "string") or (given, wanted) == ("integer", "number")
