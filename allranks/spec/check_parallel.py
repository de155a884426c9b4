"""Checks of a parallel component beside those of any command: what is divided, by which script, and what is written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from allranks.errors import Problem
from allranks.spec.check_bindings import StepBindings
from allranks.spec.expressions import find_references, replace_references
from allranks.spec.parallel import ParallelComponent
from allranks.spec.section import a_or_an
from allranks.spec.suggest import did_you_mean, nearest_hint

_FILES = ("uri_file", "uri_folder", "mltable", "path")


def check_parallel(component: ParallelComponent) -> Iterator[Problem]:
    """Check what only parallel components have; the ports of a component that could not be read are passed over."""
    source, settings = component.source, component.settings
    divided = component.inputs.get(settings.input_data or "")
    if settings.input_data and divided is None:
        message = f"there is no input '{settings.input_data}'."
        yield source.problem("input_data", message, did_you_mean(settings.input_data, component.inputs, "inputs"))
    elif divided is not None and divided.type not in _FILES:
        message = f"'{divided.name}' is {a_or_an(divided.type)}; only files and tables can be divided."
        yield source.problem("input_data", message, "Bind a uri_folder or an mltable.")
    if component.append_row_to and component.append_row_to not in component.outputs:
        message = f"there is no output '{component.append_row_to}'."
        hint = did_you_mean(component.append_row_to, component.outputs, "outputs")
        yield source.problem("task.append_row_to", message, hint)
    yield from _check_script(component)
    try:
        shlex.split(replace_references(component.command, lambda _: "_"))
    except ValueError:
        yield source.problem("command", "a quote is opened and not closed.")


def _check_script(component: ParallelComponent) -> Iterator[Problem]:
    """The entry script is a file of the code, and not, as a command may be, something that is made there."""
    code, script = component.code, PurePath(os.path.normpath(component.entry_script))
    if not component.entry_script or (code is not None and not code.exists()):
        return
    if code is None:
        hint = "Write code: ./src, the folder of the entry script."
        yield component.source.problem("task", "has an entry_script and no code.", hint)
        return
    landed = [*(code.iterdir() if code.is_dir() else [code]), *component.includes]
    module = PurePath(f"{component.entry_script.replace('.', '/')}.py")  # of pkg.main
    if not any(_lies_in(landed, one) for one in (script, module)):
        names = [path.name for path in landed if path.suffix == ".py"]
        message = f"there is no file '{component.entry_script}' in '{code}'."
        yield component.source.problem("task.entry_script", message, nearest_hint(script.name, names))


def _lies_in(landed: Iterable[Path], script: PurePath) -> bool:
    first, *rest = script.parts or (".",)
    return any(one.name == first and one.joinpath(*rest).is_file() for one in landed)


def check_parallel_bindings(bindings: StepBindings) -> Iterator[Problem]:
    """Check bindings in a parallel step's numbers: only the pipeline's inputs are known before it starts."""
    component = bindings.step.component
    for where, value in component.settings.numbers.items() if isinstance(component, ParallelComponent) else ():
        for reference in find_references(value) if isinstance(value, str) else ():
            if reference.scope == "parent.jobs":
                yield bindings.wrong(where, f"{reference}: only the pipeline's inputs can stand here.")
            else:
                yield from bindings.check(reference, where)
