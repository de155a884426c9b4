"""Which step needs which: the references between a pipeline's steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allranks.spec.expressions import Reference, references
from allranks.spec.model import Data, Pipeline, Step


def input_references(step: Step) -> Iterator[tuple[str, Reference]]:
    """Yield (input name, reference) for each ``${{ }}`` in a step's inputs, in the order written."""
    for name, value in step.inputs.items():
        text = value.path if isinstance(value, Data) else value
        if isinstance(text, str):
            for reference in references(text):
                yield name, reference


def dependencies(step: Step) -> tuple[str, ...]:
    """Return the names of the steps whose outputs this step reads, each once, in the order written."""
    found = (reference.step for _, reference in input_references(step) if reference.scope == "parent.jobs")
    return tuple(dict.fromkeys(found))


def find_cycle(pipeline: Pipeline) -> list[str] | None:
    """Return the steps of one cycle, the first one again at the end, or None when the steps can be ordered."""
    needs = {name: [d for d in dependencies(step) if d in pipeline.steps] for name, step in pipeline.steps.items()}
    done: set[str] = set()
    for start in needs:
        cycle = _walk(start, needs, done)
        if cycle is not None:
            first = cycle.index(next(name for name in needs if name in cycle))
            return [*cycle[first:], *cycle[: first + 1]]
    return None


def _walk(start: str, needs: Mapping[str, list[str]], done: set[str]) -> list[str] | None:
    path: list[str] = []
    stack = [(start, False)]  # a step, and whether all that it needs has been walked
    while stack:
        name, left = stack.pop()
        if left:
            done.add(path.pop())
        elif name in path:
            return list(reversed(path[path.index(name) :]))
        elif name not in done:
            path.append(name)
            stack.append((name, True))
            stack.extend((needed, False) for needed in needs[name])
    return None
