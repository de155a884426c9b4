"""Checks of a step's own settings: how many nodes and ranks, on what, for how long, with which variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from allranks.errors import Problem
from allranks.spec.check_bindings import StepBindings
from allranks.spec.check_counts import check_counts, check_shm_size, check_workers
from allranks.spec.expressions import find_references, single_reference
from allranks.spec.model import Component, Input, Source
from allranks.spec.needs import Distribution
from allranks.spec.section import a_or_an
from allranks.spec.values import check_value


def check_settings(bindings: StepBindings) -> Iterator[Problem]:
    """Yield what is wrong with a step's settings, and with bindings in them."""
    step, source = bindings.step, bindings.pipeline.source
    source = replace(source, prefix=source.place(bindings.place))
    yield from check_counts(source, step.distribution, step.resources, step.timeout)
    distribution, nodes = step.distribution, step.resources.nodes
    if isinstance(step.component, Component):
        distribution = distribution or step.component.distribution
        nodes = step.component.resources.nodes if nodes is None else nodes
        if step.has_component:
            yield from check_workers(source, distribution, bindings.count(nodes))
    counts = distribution or Distribution("")
    yield from _check_count(bindings, "resources.instance_count", nodes)
    yield from _check_count(bindings, "distribution.process_count_per_instance", counts.processes_per_node)
    yield from _check_count(bindings, "distribution.worker_count", counts.worker_count)
    yield from _check_count(bindings, "limits.timeout", step.timeout)
    yield from _check_texts(bindings, source)
    yield from _check_lost_memory(bindings)


def _check_lost_memory(bindings: StepBindings) -> Iterator[Problem]:
    """Warn where a step's resources replace the component's, shm_size and all, as the SDK sends them."""
    step, source, written = bindings.step, bindings.pipeline.source, f"{bindings.place}.resources"
    if source.place(written) not in source.lines or not isinstance(step.component, Component):
        return
    lost = step.component.resources.shm_size
    if lost is not None and step.resources.shm_size is None and step.component.source.file != source.file:
        message = f"these replace all of the component's resources, so its shm_size {lost} is lost on Azure ML."
        yield bindings.wrong("resources", message, f"Add shm_size: {lost}.", "warning")


def _check_count(bindings: StepBindings, where: str, value: float | str | None) -> Iterator[Problem]:
    if not isinstance(value, str):
        return
    reference = single_reference(value)
    if reference is None or reference.scope != "parent.inputs":
        yield bindings.wrong(where, f"'{value}' is no binding for a number.", "Write ${{parent.inputs.NAME}}.")
        return
    given = bindings.pipeline.inputs.get(reference.name)
    if given is None:
        yield from bindings.check(reference, where)
    elif given.name in bindings.known:
        typed = check_value(Input(given.name, "integer", min=1), bindings.known[given.name])
        if isinstance(typed, Problem):
            yield bindings.wrong(where, f"{typed.message} It is the pipeline's input '{given.name}'.")
    elif given.type == "boolean" or given.is_data:
        message = f"takes an integer, and the pipeline's input '{given.name}' is {a_or_an(given.type)}."
        yield bindings.wrong(where, message)


def _check_texts(bindings: StepBindings, source: Source) -> Iterator[Problem]:
    step = bindings.step
    texts = {
        "compute": step.compute,
        "resources.instance_type": step.resources.instance_type,
        "resources.shm_size": step.resources.shm_size,
        **{f"environment_variables.{name}": text for name, text in step.environment_variables.items()},
    }
    for where, text in texts.items():
        for reference in find_references(text or ""):
            if reference.scope == "parent.jobs":
                yield bindings.wrong(where, f"{reference}: only the pipeline's inputs can stand here.")
            else:
                yield from bindings.check(reference, where)
    for reference in find_references(step.resources.shm_size or ""):
        known = bindings.known.get(reference.name) if reference.scope == "parent.inputs" else None
        if isinstance(known, str):
            yield from check_shm_size(source, "resources.shm_size", known)
