"""Reads ``FILE.py:FUNCTION``: a child process with the SDK builds the pipeline and prints it as a document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.catalogue import resolve
from allranks.child_process import child_command
from allranks.errors import AllranksError, CannotRunHereError, UnknownNameError, UsageError
from allranks.spec.model import Literal, Pipeline, Source
from allranks.spec.read import pipeline_from

# Not `python -m`: that puts the working directory first on the path, where a folder called azure would hide the SDK.
_CHILD = "from allranks.azure.reader import main; sys.exit(main())"
_KINDS = {error.kind: error for error in (UsageError, UnknownNameError, CannotRunHereError)}


def is_python_target(target: str) -> bool:
    """Whether a target is written as ``FILE.py:FUNCTION``."""
    return ".py:" in target or target.endswith(".py")


def read_python_pipeline(target: str, values: Mapping[str, Literal] | None = None) -> Pipeline:
    """Build the pipeline of ``FILE.py:FUNCTION`` in a child process; takes about two seconds.

    The function has the SDK's ``@pipeline``, or is a pipeline job. The values of its parameters become those of the
    pipeline's inputs; names that it does not have are passed over: they may be a step's inputs.

    Raises:
        UnknownNameError: there is no such file, or no such function in it; the nearest names are offered.
        UsageError: the target is written otherwise, the function is no pipeline, or the user's code fails.
        CannotRunHereError: azure-ai-ml is not installed.
        SpecError: the pipeline is not valid.
    """
    file = split_target(target)[0].resolve()
    return pipeline_from(read_python_document(target, values), Source(file=None, base=file.parent), resolve)


def read_python_document(
    target: str, values: Mapping[str, Literal] | None = None, *, whole: bool = False
) -> dict[str, Any]:
    """The document that the child prints, in the form of a pipeline YAML; takes and raises as ``read_python_pipeline``.

    With ``whole`` a job of which YAML cannot say everything is refused.
    """
    file, function = split_target(target)
    if not file.is_file():
        hint = "Give FILE.py:FUNCTION, from the folder where you are."
        raise UnknownNameError(f"there is no file {str(file)!r}.", hint)
    command = child_command(_CHILD, str(file.resolve()), function)
    command += ["--whole"] if whole else []
    done = subprocess.run(command, input=json.dumps(dict(values or {})), capture_output=True, text=True, check=False)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = " ".join(done.stderr.split()[-40:])
        raise UsageError(f"{target} could not be read: its process ended with {done.returncode}. {last}") from None
    sys.stderr.write(done.stderr)
    if "error" in document:
        kind, message, hint = (document["error"][key] for key in ("kind", "message", "hint"))
        raise _KINDS.get(kind, AllranksError)(message, hint)
    return document


def split_target(target: str) -> tuple[Path, str]:
    """The file and the function of ``FILE.py:FUNCTION``; raises UsageError for a target that is written otherwise."""
    file, colon, function = target.rpartition(":")
    if target.endswith(".py"):
        raise UsageError(
            f"{target!r} is a script; a Python target is a function with @pipeline, {target}:FUNCTION.",
            f"`allranks run {target}` runs it, `allranks init {target}` makes a component of it for the other verbs.",
        )
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise UsageError(f"{target!r} does not name a Python pipeline.", "Write FILE.py:FUNCTION.")
    return Path(file), function
