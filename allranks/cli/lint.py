"""``allranks lint``: what Azure ML would accept today and fail on tomorrow, found before anything is sent or run.

What Azure ML takes and this machine cannot run, such as a Spark step or a component of another registry, is a note.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from allranks import catalogue, library
from allranks.cli import text
from allranks.cli.inputs import add_map_argument
from allranks.errors import Problem, SpecError, UnknownNameError, UsageError
from allranks.local.assets import CloudStandIns, read_mapping
from allranks.spec import Component, Pipeline, check_designer, check_document, check_machines, check_quotes, read_spec
from allranks.spec.schema import CLOUD_ONLY_TYPES

HELP = "check component and pipeline YAML: types, ranges, references, cycles, names"

_OURS = re.compile(
    r"^\$schema:.*(commandComponent|pipelineComponent|pipelineJob)"
    rf"|^type:\s*['\"]?(command|pipeline|{'|'.join(sorted(CLOUD_ONLY_TYPES))})\b|^jobs:",
    re.MULTILINE,
)
_PREFIX = {"error": "", "warning": "warning: ", "elsewhere": "note: "}
_SKIPPED = {"node_modules", "__pycache__", "build", "dist"}
_LIBRARY = ("components", "pipelines")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="a YAML file, a folder, a name from `allranks list` or FILE.py:FUNCTION; without one, those of the current"
        " folder and of components/ and pipelines/ in it, or else the library's",
    )
    add_map_argument(parser)
    parser.add_argument(
        "--designer", action="store_true", help="also name what a user of Designer would miss in a component"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print every problem as ``file:line: where: message``; 2 when one of them is an error, 0 otherwise."""
    targets = [target for name in args.paths for target in find_documents(name)] if args.paths else _here()
    of_library = not targets and not args.paths  # said in the summary: nothing of the user's own was checked
    targets = targets or _of_library()
    found = [problem for target in targets for problem in _problems_of(target, args.map, designer=args.designer)]
    problems = _without_repeats(found)
    errors, warnings = (sum(one.severity == severity for one in problems) for severity in ("error", "warning"))
    if args.json:
        print(
            json.dumps({"checked": targets, "errors": errors, "problems": [_document(p) for p in problems]}, indent=1)
        )
    else:
        for problem in problems:
            print(f"{_PREFIX[problem.severity]}{_relative(problem)}")
        print(_summary(len(targets), errors, warnings, " of the library" if of_library else ""))
    return 2 if errors else 0


def find_documents(name: str) -> list[str]:
    """The documents that an argument stands for, as text: YAML files, or ``file.py:function`` as it is.

    Raises:
        UnknownNameError: no file, folder or catalogue name is called so.
        UsageError: the folder holds no component and no pipeline.
    """
    path = Path(name)
    if path.is_dir():
        found = sorted(map(str, _documents_in(path)))
        if not found:
            raise UsageError(f"there is no component or pipeline YAML in {name!r}.", "Name a file to check it anyway.")
        return found
    if path.is_file():
        return [_yaml_file(name)]
    if _python_file(name).is_file():
        return [name]
    known = catalogue.resolve(name)
    if known is None:
        why = text.why_no_yaml(name) or (
            f"{name!r} is no file, no folder and no name of the library"
            + text.name_suggestion(name, (*catalogue.COMPONENTS, *catalogue.PIPELINES))
        )
        raise UnknownNameError(
            f"{why}.", "Give a YAML file, a folder, a name from `allranks list` or FILE.py:FUNCTION."
        )
    return [str(known)]


def _documents_in(folder: Path) -> Iterator[Path]:
    """Every YAML file below a folder that is a component or a pipeline; hidden folders and builds are left out.

    Judged by the text, so that a file that is no valid YAML is checked, and reported, all the same.
    """
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for file in sorted(files):
            path = Path(here, file)
            if path.suffix in text.YAML_SUFFIXES and path.is_file() and _is_ours(path):
                yield path


def _problems_of(target: str, mapped: Sequence[str] = (), *, designer: bool = False) -> list[Problem]:
    """All that is wrong with one document, whether reading or checking finds it.

    Args:
        target: a YAML file or ``file.py:function``.
        mapped: ``REFERENCE=PATH`` for components that are registered in Azure.
        designer: also check what Designer shows of a component; a pipeline's YAML is not dragged, its function is.
    """
    try:
        document = _read(target, mapped)
    except SpecError as error:
        return [*error.problems, *error.warnings]
    problems = [*check_document(document), *check_machines(document), *check_quotes(document)]
    if designer and (isinstance(document, Component) or document.source.file is None):
        problems += check_designer(document)
    return problems


def _read(target: str, mapped: Sequence[str]) -> Component | Pipeline:
    if _is_python(target):
        from allranks.azure.python_target import read_python_pipeline

        return read_python_pipeline(target)
    stands = CloudStandIns(read_mapping(mapped, Path(target).absolute().parent))
    return read_spec(Path(target), resolve=lambda name: catalogue.resolve(name) or stands.find(name), to_run=False)


def _is_ours(path: Path) -> bool:
    try:
        return _OURS.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return True  # reading it will say what is wrong


def _here() -> list[str]:
    """What lies in the current folder itself, in components/ and in pipelines/: other folders may hold anything."""
    own = (
        path
        for path in sorted(Path().iterdir())
        if path.suffix in text.YAML_SUFFIXES and path.is_file() and _is_ours(path)
    )
    below = (path for name in _LIBRARY for path in _documents_in(Path(name)))
    return [str(path) for path in (*own, *below)]


def _of_library() -> list[str]:
    return [str(path) for name in _LIBRARY for path in _documents_in(library.root() / name)]


def _yaml_file(name: str) -> str:
    if Path(name).suffix in text.YAML_SUFFIXES:
        return name
    hint = f"A Python pipeline is named with its function: {name}:FUNCTION." if name.endswith(".py") else ""
    raise UsageError(f"{text.why_no_yaml(name)}.", hint)


def _is_python(target: str) -> bool:
    return ".py:" in target


def _python_file(target: str) -> Path:
    return Path(target.rpartition(":")[0] if _is_python(target) else target)


def _without_repeats(problems: list[Problem]) -> list[Problem]:
    """Each problem once: a component's are found again by every pipeline that uses it."""
    return list(dict.fromkeys(problems))


def _relative(problem: Problem) -> str:
    """The problem as text, its file relative to the current folder where it lies below it."""
    whole = str(problem)
    return whole.removeprefix(f"{Path.cwd()}{os.sep}")


def _document(problem: Problem) -> dict[str, Any]:
    return {
        "file": None if problem.file is None else str(problem.file),
        "line": problem.line,
        "where": problem.where,
        "message": problem.message,
        "hint": problem.hint,
        "severity": problem.severity,
    }


def _summary(documents: int, errors: int, warnings: int, whose: str) -> str:
    checked = f"{documents} document{'' if documents == 1 else 's'}{whose} checked"
    if not errors and not warnings:
        return f"{checked}, nothing wrong"
    return f"{checked}, {errors} error{'' if errors == 1 else 's'}, {warnings} warning{'' if warnings == 1 else 's'}"
