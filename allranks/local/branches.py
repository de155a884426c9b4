"""What the ends of other steps mean to a step: whether it runs at all, and the values that only they could tell.

Azure ML does not publish what becomes of the steps around a branch that is not taken; here it is so. A step that reads
from such a branch does not run either, unless the input is optional and it reads from another step that has run: the
step that joins two branches has an optional input for each, in Microsoft's own pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from allranks.errors import Problem
from allranks.local.execution import StepExecution
from allranks.local.plan import InputValue, PlannedStep
from allranks.local.result import NOT_TAKEN, StepFailure
from allranks.spec import Data, Input, check_value, literal_text
from allranks.spec.budget import current_budget
from allranks.spec.model import Literal
from allranks.spec.values import check_command_values


def is_taken(step: PlannedStep, steps: Mapping[str, StepExecution]) -> bool:
    """Whether a step runs, now that those that it comes ``after`` have ended and none of them has failed."""
    if any(steps[name].decision is not wanted for name, wanted in step.chosen_by):
        return False
    missing = {port for port, output in step.bound.items() if steps[output.step].status == NOT_TAKEN}
    needed = any(not step.component.inputs[port].optional for port in missing)
    return not missing or not (needed or missing == step.bound.keys())


def settled_inputs(step: PlannedStep, steps: Mapping[str, StepExecution]) -> PlannedStep | StepFailure:
    """The step without the inputs that a branch not taken would have written, and with literals that steps have.

    On Azure ML a literal output is what the script, or mldesigner, writes to the file that its path names.
    """
    inputs: dict[str, InputValue] = dict(step.inputs)
    for port, output in step.bound.items():
        if steps[output.step].status == NOT_TAKEN:
            del inputs[port]
        elif not (declared := step.component.inputs[port]).is_data:
            text = _written_text(steps[output.step].output_path(output.port))
            value = _read_value(step, declared, text) if text is not None else None
            if value is None or isinstance(value, Problem):
                why = value.message if value else "no text of at most 65,536 characters was written there."
                return StepFailure(f"its input {port} is the output {output.port} of {output.step}: {why}")
            assert isinstance(value, str | int | float | bool)  # noqa: S101 the input is a literal
            inputs[port] = literal_text(value)
    return step if inputs == step.inputs else replace(step, inputs=MappingProxyType(inputs))


def _read_value(step: PlannedStep, declared: Input, text: str) -> Literal | Data | Problem:
    """The text as a value that the input can take and that leaves the command what it is."""
    value = check_value(declared, text)
    if isinstance(value, Problem):
        return value
    return next(iter(check_command_values(step.component, {declared.name: value})), value)


def _written_text(path: Path) -> str | None:
    """What a literal output says: a file, or in a folder the file ``output`` as mldesigner writes it, or the only one.

    None where it says nothing.
    """
    if path.is_dir():
        files = [one for one in path.iterdir() if one.is_file()]
        path = path / "output" if (path / "output").is_file() or len(files) != 1 else files[0]
    if not path.is_file():  # a pipe would be waited for
        return None
    try:
        most = current_budget().output_characters  # Azure ML takes 1,000
        with path.open(encoding="utf-8") as stream:
            text = stream.read(most + 1)
    except (OSError, UnicodeDecodeError):
        return None
    return None if len(text) > most or "\0" in text else text.strip()
