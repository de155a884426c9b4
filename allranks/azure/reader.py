"""``python -m allranks.azure.reader FILE FUNCTION``: a Python pipeline as one JSON document on standard output.

A process of its own, because the SDK takes a second and a hundred megabytes, and because what it runs is the user's
module: whatever that prints goes to standard error. Parameters stand as a JSON object on standard input.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from allranks.azure.client import require_sdk
from allranks.azure.sdk import is_of_text_annotations, is_pipeline_function, pipeline_builder
from allranks.errors import AllranksError, UnknownNameError, UsageError
from allranks.spec.model import LITERAL_TYPES

_WHOLE = "--whole"
"""The third argument, for a document that ``export`` writes."""


def main(argv: list[str] | None = None) -> int:
    """Print the document, or ``{"error": {"kind", "message", "hint"}}`` with exit code 2."""
    file, function, *more = sys.argv[1:] if argv is None else argv
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the user's module may print, also from what it starts
    try:
        values = json.loads(sys.stdin.read() or "{}")
        document = read_function(Path(file), function, values, whole=more == [_WHOLE])
    except AllranksError as error:
        document = {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}
    except Exception as error:  # noqa: BLE001 - of the SDK, on a job that it built itself
        message = f"{file}: {function} was built, but cannot be read: {type(error).__name__}: {error}"
        document = {"error": {"kind": AllranksError.kind, "message": message, "hint": ""}}
    with stdout:
        json.dump(document, stdout)
    return 2 if "error" in document else 0


def read_function(file: Path, function: str, values: Mapping[str, Any], *, whole: bool = False) -> dict[str, Any]:
    """The pipeline that ``function`` of ``file`` builds, as a document in the form of a pipeline YAML.

    The file's folder is on the path while it is read, as it is for ``python FILE``. Of the values those that the
    function does not have are left to the caller. With ``whole``, for ``export``, a job of which YAML cannot say
    everything is refused, and the document has a ``job_name`` if the job has a name.

    Raises:
        AllranksError: the file or function does not exist, is no pipeline, or fails; a UsageError names each field
            that would be lost.
    """
    warnings.simplefilter("ignore")  # notes about experimental classes
    logging.getLogger("azure").setLevel(logging.ERROR)
    require_sdk("A Python pipeline")
    job = job_builder(file, function)(values)
    from allranks.azure.document import job_document

    if not whole:
        return job_document(job)
    from allranks.azure.losses import unwritten_fields

    if lost := unwritten_fields(job):
        hint = "Leave them out of the function, or send the job as it is: allranks submit."
        raise UsageError(f"the YAML of {function} would lose what is set: {'; '.join(lost)}.", hint)
    return job_document(job) | ({"job_name": job.name} if job.name else {})


def job_builder(file: Path, function: str) -> Callable[[Mapping[str, Any]], Any]:
    """What builds the SDK's pipeline job of ``FILE.py:FUNCTION`` from values by name; the file is imported once.

    Raises:
        AllranksError: the file or function does not exist, or is no pipeline; the builder raises it if it fails.
    """
    module = _load(file)
    found = getattr(module, function, None)
    if found is None:
        near = get_close_matches(function, _pipelines(module), n=3, cutoff=0.5)
        guess = f"Did you mean {' or '.join(near)}?" if near else _offer(module) or "It defines no pipeline."
        raise UnknownNameError(f"{file} has no function {function!r}.", guess)
    from azure.ai.ml.entities import PipelineJob

    if is_pipeline_function(found):
        return lambda values: _build(found, file, values)
    if isinstance(found, PipelineJob):
        return lambda _values: found
    message = f"{function!r} in {file} is no pipeline: it is a {type(found).__name__}."
    raise UsageError(message, _offer(module) or "Decorate it with @pipeline from azure.ai.ml.dsl.")


def _load(file: Path) -> Any:
    """Import the user's module under its own name, with its folder first on the path."""
    if not file.is_file():
        raise UnknownNameError(f"there is no file {file}.", "Give FILE.py:FUNCTION, from the folder where you are.")
    name = file.stem if file.stem not in sys.modules else f"_{file.stem}_of_user"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file.", "Give FILE.py:FUNCTION.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    # A file that is edited within a second, and keeps its size, would be taken for what was compiled before.
    compiled, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's module raises is the answer
        _fail(error, file, "cannot be imported")
    finally:
        sys.dont_write_bytecode = compiled
    return module


def _build(function: Any, file: Path, values: Mapping[str, Any]) -> Any:
    """Call the pipeline function; the SDK lets required inputs be absent until a job is sent."""
    builder = pipeline_builder(function)
    parameters = inspect.signature(function).parameters
    data = {name for name, declared in builder.inputs.items() if declared.type not in LITERAL_TYPES}
    plain = set(builder.non_pipeline_parameter_names)
    given = {}
    for name in parameters.keys() & values.keys():
        if name in plain:
            given[name] = _cast(values[name], parameters[name])
        elif name in data:
            from azure.ai.ml import Input

            given[name] = Input(type=builder.inputs[name].type or "uri_folder", path=str(values[name]))
        else:
            given[name] = values[name]
    try:
        return function(**given)
    except Exception as error:  # noqa: BLE001 - whatever the user's function raises is the answer
        _fail(error, file, f"{function.__name__}() failed")


def _cast(value: Any, parameter: inspect.Parameter) -> Any:
    """A Python parameter of the function (``non_pipeline_inputs``), as its annotation or default says."""
    kind = parameter.annotation if isinstance(parameter.annotation, type) else type(parameter.default)
    if not isinstance(value, str) or kind not in (int, float, bool):
        return value
    if kind is bool:
        return value.lower() in ("true", "1", "yes")
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{parameter.name}={value!r} is not of type {kind.__name__}.") from None


def _offer(module: Any) -> str:
    names = _pipelines(module)
    return f"Its pipelines: {', '.join(names)}." if names else ""


def _pipelines(module: Any) -> list[str]:
    """The pipelines that a module defines or imports."""
    return [name for name, found in vars(module).items() if not name.startswith("_") and is_pipeline_function(found)]


def _fail(error: BaseException, file: Path, what: str) -> NoReturn:
    """Raise with the line of the user's file where it happened."""
    if isinstance(error, AllranksError):
        raise error
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, file)]
    if isinstance(error, SyntaxError) and _same(error.filename or "", file):
        lines.append(error.lineno)
    line = f":{lines[-1]}" if lines else ""
    message = " ".join(str(error).split()) or "no message"
    as_text = is_of_text_annotations(error)
    hint = "If the file has `from __future__ import annotations`, remove that line." if as_text else ""
    raise UsageError(f"{file}{line}: {what}: {type(error).__name__}: {message}", hint) from None


def _same(filename: str, file: Path) -> bool:
    return Path(filename).resolve() == file.resolve()


if __name__ == "__main__":
    sys.exit(main())
