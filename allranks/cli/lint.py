"""``allranks lint``: what Azure ML would accept today and fail on tomorrow, found before anything is sent or run.

What Azure ML takes and this machine cannot run, such as a Spark step or a component of another registry, is a note.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from allranks import catalogue, library
from allranks.cli import text
from allranks.cli.inputs import add_map_argument
from allranks.cli.target import target_folder
from allranks.errors import Problem, SpecError, UnknownNameError, UsageError
from allranks.local.assets import CloudStandIns, read_mapping
from allranks.local.checkout import CheckoutFiles
from allranks.local.checkout_assets import CheckoutAssets
from allranks.local.described import asset_problems
from allranks.planning.network_waits import network_waits
from allranks.redaction import redact
from allranks.spec import (
    Component,
    Pipeline,
    check_compute,
    check_designer,
    check_document,
    check_machines,
    check_quotes,
    read_spec,
)
from allranks.spec.schema import CLOUD_ONLY_TYPES
from allranks.spec.steps import STEP_KINDS
from allranks.wording import with_count

HELP = "check component and pipeline YAML: types, ranges, references, cycles, names"

_OURS = re.compile(
    r"^\$schema:.*(commandComponent|pipelineComponent|pipelineJob|commandJob|sweepJob|schedule)"
    rf"|^type:\s*['\"]?({'|'.join(sorted(CLOUD_ONLY_TYPES | STEP_KINDS.keys()))})\b|^jobs:"
    r"|^(tier|vm_priority):\s*['\"]?(?i:low[_-]?priority)",
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
    designer = "also name what a user of Designer would miss in a component"
    parser.add_argument("--designer", action="store_true", help=designer)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print every problem as ``file:line: where: message``; 2 when one of them is an error, 0 otherwise."""
    targets = [target for name in args.paths for target in find_documents(name)] if args.paths else _here()
    of_library = not targets and not args.paths  # said in the summary: nothing of the user's own was checked
    targets = targets or _in_library_folders(library.root())
    read: dict[Path, CheckoutFiles] = {}  # a project's files are looked through once for all its documents
    stands = {target: _stand_ins(target, args.map, read) for target in targets}
    found = (one for target in targets for one in _problems_of(target, stands[target], designer=args.designer))
    problems = list(dict.fromkeys(found))  # each once: a component's are found again by every pipeline that uses it
    errors, warnings = (sum(one.severity == severity for one in problems) for severity in ("error", "warning"))
    if args.json:
        taken = {target: one.taken for target, one in stands.items() if one.taken}
        shown = [_document(problem) for problem in problems]
        text.print_output({"checked": targets, "errors": errors, "problems": shown, "assets": taken})
    else:
        for line in dict.fromkeys(line for one in stands.values() for line in one.taken_lines):
            print(f"note: {line}")
        for problem in problems:
            print(_PREFIX[problem.severity] + text.shown_message(str(problem)).removeprefix(f"{Path.cwd()}{os.sep}"))
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
        if path.suffix in text.YAML_SUFFIXES:
            return [name]
        hint = f"A Python pipeline is named with its function: {name}:FUNCTION." if name.endswith(".py") else ""
        raise UsageError(f"{text.why_no_yaml(name)}.", hint)
    if ".py:" in name and Path(name.rpartition(":")[0]).is_file():
        return [name]
    known = catalogue.resolve(name)
    if known is None:
        close = text.name_suggestion(name, (*catalogue.COMPONENTS, *catalogue.PIPELINES))
        why = text.why_no_yaml(name) or f"{name!r} is no file, no folder and no name of the library{close}"
        hint = "Give a YAML file, a folder, a name from `allranks list` or FILE.py:FUNCTION."
        raise UnknownNameError(f"{why}.", hint)
    return [str(known)]


def _documents_in(folder: Path) -> Iterator[Path]:
    """Every YAML file below a folder that is a component or a pipeline; hidden folders and builds are left out.

    Judged by the text, so that a file that is no valid YAML is checked, and reported, all the same.
    """
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for file in sorted(files):
            if _is_ours(path := Path(here, file)):
                yield path


def _stand_ins(target: str, mapped: Sequence[str], read: dict[Path, CheckoutFiles]) -> CloudStandIns:
    folder = target_folder(target)
    return CloudStandIns(read_mapping(mapped, folder), checkout=CheckoutAssets.around(folder, read))


def _problems_of(target: str, stands: CloudStandIns, *, designer: bool) -> list[Problem]:
    """All that is wrong with one document, whether reading or checking finds it."""
    try:
        document = _read(target, stands)
    except SpecError as error:
        return [*error.problems, *error.warnings]
    checks = (check_document, check_machines, check_quotes, check_compute, network_waits)
    problems = [problem for check in checks for problem in check(document)]
    problems += asset_problems(document, stands)
    # A pipeline's YAML is not dragged in Designer, its function is.
    if designer and (isinstance(document, Component) or document.source.file is None):
        problems += check_designer(document)
    return problems


def _read(target: str, stands: CloudStandIns) -> Component | Pipeline:
    if ".py:" in target:
        from allranks.azure.python_target import read_python_pipeline

        return read_python_pipeline(target)
    return read_spec(Path(target), resolve=stands.find_component, to_run=False)


def _is_ours(path: Path) -> bool:
    """Whether a file is the YAML of a component or a pipeline, judged by its text."""
    if path.suffix not in text.YAML_SUFFIXES or not path.is_file():
        return False
    try:
        return _OURS.search(path.read_text(encoding="utf-8", errors="replace")) is not None
    except OSError:
        return True  # reading it will say what is wrong


def _here() -> list[str]:
    """What lies in the current folder itself, in components/ and in pipelines/: other folders may hold anything."""
    own = filter(_is_ours, sorted(Path().iterdir()))
    return [*map(str, own), *_in_library_folders(Path())]


def _in_library_folders(root: Path) -> list[str]:
    return [str(path) for name in _LIBRARY for path in _documents_in(root / name)]


def _document(problem: Problem) -> dict[str, Any]:
    return {
        "file": None if problem.file is None else str(problem.file),
        "line": problem.line,
        "where": problem.where,
        "message": redact(problem.message),
        "hint": redact(problem.hint),
        "severity": problem.severity,
    }


def _summary(documents: int, errors: int, warnings: int, whose: str) -> str:
    checked = f"{with_count(documents, 'document')}{whose} checked"
    if not errors and not warnings:
        return f"{checked}, nothing wrong"
    return f"{checked}, {with_count(errors, 'error')}, {with_count(warnings, 'warning')}"
