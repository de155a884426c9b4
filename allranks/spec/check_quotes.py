"""Texts that a shell would read: inputs that stand bare in a command. A matter for ``lint``, and not for each run."""

from __future__ import annotations

from allranks.errors import Problem
from allranks.spec.expressions import bare_inputs, declared_name
from allranks.spec.model import Component, Pipeline
from allranks.spec.parallel import ParallelComponent


def check_quotes(document: Component | Pipeline) -> list[Problem]:
    """A warning for each command in which inputs of type string stand outside quotes.

    Numbers and choices cannot do harm, and paths are rarely given by strangers. Double quotes pass: who writes them may
    want what the shell makes of a value.
    """
    if isinstance(document, Pipeline):
        inner = [problem for step in document.steps.values() for problem in check_quotes(step.component)]
        return list(dict.fromkeys(inner))
    if document.is_generated or isinstance(document, ParallelComponent):  # no shell reads program arguments
        return []
    inputs = document.inputs
    names = [declared_name(name, inputs) for name in bare_inputs(document.command)]
    texts = [name for name in names if name in inputs and inputs[name].type == "string" and not inputs[name].enum]
    if not texts:
        return []
    message = (
        f"texts stand bare in the command: {', '.join(texts)}. A shell reads what is in them: a space divides one, and"
        " $(...) is run."
    )
    hint = f"(Write '${{{{inputs.{texts[0]}}}}}', in single quotes: between double ones $(...) still runs.)"
    return [document.source.problem("command", message, hint, "warning")]
