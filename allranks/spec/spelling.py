"""Names of inputs that differ in upper and lower case only: Azure ML takes them for one, and so does everything here.

The SDK refuses a component with two such inputs (``Component._validate_io_names`` of azure-ai-ml 1.35.2 compares
``name.lower()``), and Microsoft's own pipelines bind ``raw_Data`` to ``raw_data``. What is written is
replaced by the declared name where a document is read, with a warning, so that nobody else has to know of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from allranks.spec.expressions import STEP_INPUT_SCOPE, Reference, find_references, replace_references
from allranks.spec.model import Step
from allranks.spec.section import Section


def declared_spelling(name: str, declared: Iterable[str]) -> str | None:
    """The one declared name that equals ``name`` but for upper and lower case; None if there is none, or no need."""
    written = {name, name.removesuffix(".path")}  # as ``expressions.declared_name``
    declared = tuple(declared)
    if written & {*declared}:
        return None
    same = [one for one in declared if one.lower() in {each.lower() for each in written}]
    return same[0] if len(same) == 1 else None


def respell_references(section: Section, key: str, text: str, scope: str, declared: Iterable[str]) -> str:
    """Write a text's references of a scope as they are declared, with a warning at ``key`` for each that was not."""
    declared = tuple(declared)

    def spelt(reference: Reference) -> str:
        meant = declared_spelling(reference.name, declared) if reference.scope == scope else None
        return str(reference if meant is None else replace(reference, name=meant))

    wrong = [one for one in find_references(text) if one.scope == scope and declared_spelling(one.name, declared)]
    for name in dict.fromkeys(one.name for one in wrong):
        _warn(section, key, name, declared_spelling(name, declared))
    return replace_references(text, spelt) if wrong else text


def respell_bindings(jobs: Section, declared: Iterable[str]) -> Section:
    """The steps of a pipeline with each ``${{parent.inputs.NAME}}`` as the pipeline declares it."""
    declared = tuple(declared)

    def spelt(value: Any, key: str) -> Any:
        if isinstance(value, str):
            return respell_references(jobs, key, value, "parent.inputs", declared)
        if isinstance(value, list):
            return [spelt(item, f"{key}.{index}") for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {name: spelt_below(name, one, key) for name, one in value.items()}
        return value

    def spelt_below(name: str, value: Any, key: str) -> Any:
        has_own_parent = name in {"component", "trial"} and isinstance(value, dict)
        return value if has_own_parent else spelt(value, f"{key}.{name}")

    return replace(jobs, data={name: spelt(value, name) for name, value in jobs.data.items()})


def respell_steps(jobs: Section, steps: Mapping[str, Step]) -> dict[str, Step]:
    """The steps with their inputs, and what they take from each other's, as the components declare these."""
    return {name: _respell_step(jobs, step, steps) for name, step in steps.items()}


def _respell_step(jobs: Section, step: Step, steps: Mapping[str, Step]) -> Step:
    inputs = {}
    for name, value in step.inputs.items():
        place = f"{step.name}.inputs.{name}"
        meant = declared_spelling(name, step.component.inputs) if step.has_component and not step.is_inline else None
        if meant is not None and meant not in step.inputs:
            _warn(jobs, place, name, meant)
        else:
            meant = name
        inputs[meant] = _respell_borrowed(jobs, place, value, steps) if isinstance(value, str) else value
    return replace(step, inputs=MappingProxyType(inputs))


def _respell_borrowed(jobs: Section, place: str, value: str, steps: Mapping[str, Step]) -> str:
    """``${{parent.jobs.STEP.inputs.NAME}}`` with the name as that step's component declares it."""

    def spelt(reference: Reference) -> str:
        lender = steps.get(reference.step) if reference.scope == STEP_INPUT_SCOPE else None
        meant = None if lender is None else declared_spelling(reference.name, lender.component.inputs)
        if meant is None:
            return str(reference)
        _warn(jobs, place, reference.name, meant)
        return str(replace(reference, name=meant))

    has_any = any(one.scope == STEP_INPUT_SCOPE for one in find_references(value))
    return replace_references(value, spelt) if has_any else value


def _warn(section: Section, key: str, written: str, meant: str | None) -> None:
    message = f"'{written}' is declared as '{meant}'; Azure ML takes names that differ in case only for one."
    section.wrong(key, message, f"Write {meant}.", "warning")
