"""Which step needs which: the references between a pipeline's steps."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from allranks.spec.expressions import Reference, find_references
from allranks.spec.model import Data, Literal, Pipeline, Step


def input_text(value: Literal | Data) -> str:
    """Return the text of a step's input, which may hold bindings; numbers and booleans have none."""
    text = value.path if isinstance(value, Data) else value
    return text if isinstance(text, str) else ""


def input_references(step: Step) -> tuple[Reference, ...]:
    """Return every ``${{ }}`` in a step's inputs, in the order written."""
    return tuple(reference for value in step.inputs.values() for reference in find_references(input_text(value)))


def step_dependencies(step: Step) -> tuple[str, ...]:
    """Return the names of the steps whose outputs this step reads, each once, in the order written."""
    found = (reference.step for reference in input_references(step) if reference.scope == "parent.jobs")
    return tuple(dict.fromkeys(found))


def find_cycle(pipeline: Pipeline) -> list[str] | None:
    """Return the steps of one cycle, the first one again at the end, or None when the steps can be ordered."""
    needs = {name: [d for d in step_dependencies(step) if d in pipeline.steps] for name, step in pipeline.steps.items()}
    for name, step in pipeline.steps.items():
        for target in step.branch.targets if step.branch else ():
            needs.get(target, []).append(name)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][1:]
        first = cycle.index(next(name for name in needs if name in cycle))
        return [*cycle[first:], *cycle[: first + 1]]
    return None
