"""The strict check: what Azure ML's own validation does not see before a job has cost money.

``check_document`` takes any component or pipeline; the rules for one command stand in ``check_command.py`` and those
for the wiring of a pipeline in ``check_pipeline.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec.check_command import check_command, check_component_name
from allranks.spec.check_pipeline import check_pipeline
from allranks.spec.model import Component, Data, Literal, Pipeline
from allranks.spec.section import a_or_an
from allranks.spec.suggest import did_you_mean
from allranks.spec.values import Values, check_command_values, check_value


def check_document(document: Component | Pipeline, values: Values | None = None) -> list[Problem]:
    """Find everything that is wrong with a document that has been read.

    Args:
        document: a component or a pipeline.
        values: values for the document's inputs, as from NAME=VALUE; with None the document is checked by itself, and
            inputs without a value are no problem.

    Returns:
        Errors and warnings (``Problem.severity``), each once; empty when all is well.
    """
    problems = list(document.source.problems)
    given, wrong = _given(document, values or {})
    problems += wrong
    if isinstance(document, Pipeline):
        problems += check_pipeline(document, given)
    else:
        problems += [*check_component_name(document), *check_command(document), *check_command_values(document, given)]
    if values is not None:
        problems += _missing(document, given)
    return list(dict.fromkeys(problems))


def _given(document: Component | Pipeline, values: Values) -> tuple[dict[str, Literal | Data], list[Problem]]:
    """Type the values; return the good ones and the problems of the others."""
    given: dict[str, Literal | Data] = {}
    wrong = []
    for name, value in values.items():
        if name not in document.inputs:
            kind = "pipeline" if isinstance(document, Pipeline) else "component"
            hint = did_you_mean(name, document.inputs, "inputs")
            wrong.append(Problem(f"the {kind} has no input '{name}'.", f"inputs.{name}", hint=hint))
            continue
        typed = check_value(document.inputs[name], value, f"inputs.{name}")
        if isinstance(typed, Problem):
            wrong.append(typed)
        else:
            given[name] = typed
    return given, wrong


def _missing(document: Component | Pipeline, given: Values) -> Iterator[Problem]:
    for name, declared in document.inputs.items():
        if declared.required and name not in given:
            message = f"needs {a_or_an(declared.type)}, and has none."
            yield document.source.problem(f"inputs.{name}", message, f"Add {name}=VALUE.")
