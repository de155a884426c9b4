"""``allranks copy``: a component or a pipeline, with all that it needs, into the user's own tree, to change it.

The copies keep their places beside one another (components/, pipelines/, shared/, environments/), so that every
relative path in them still resolves.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from allranks import catalogue, library
from allranks.cli import text
from allranks.cli.show_document import example_command
from allranks.errors import StorageError, UnknownNameError, UsageError
from allranks.spec import Component, Pipeline, read_spec
from allranks.wording import with_count

HELP = "copy a component or pipeline, with shared/, into your own tree, to change it"

_LISTED = 10
"""So many files are named in an error; the rest are counted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    names = "a name from `allranks list`, or `shared` for the on-node code alone"
    parser.add_argument("name", metavar="NAME", help=names)
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="where the copies go (default: here)")
    present = parser.add_mutually_exclusive_group()
    present.add_argument("--force", action="store_true", help="overwrite files that are there and differ")
    present.add_argument("--keep", action="store_true", help="leave files that are there as they are, copy the others")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Copy, then print what was written and the next command."""
    target = Path(args.folder)
    if target.exists() and not target.is_dir():
        raise UsageError(f"{args.folder!r} is a file; copies go into a folder.", "Name a folder, or leave it out.")
    files = needed_files(args.name)
    changed = [file for file in files if not _is_same(file, target / file)]
    differing = [file for file in changed if os.path.lexists(target / file)]
    if differing and not (args.force or args.keep):
        count = f"{with_count(len(differing), 'file')} {'is' if len(differing) == 1 else 'are'}"
        listed = ", ".join(str(target / file) for file in differing[:_LISTED])
        rest = f" and {len(differing) - _LISTED} more" if len(differing) > _LISTED else ""
        raise UsageError(
            f"{count} there already, with other contents: {listed}{rest}.",
            "--keep leaves them as they are and copies the rest, --force overwrites them.",
        )
    written = [file for file in changed if not (args.keep and file in differing)]
    copy_files(written, target)
    _print_result(args, target, files, written)
    return 0


def needed_files(name: str) -> list[Path]:
    """Each file that a component, a pipeline or ``shared`` needs, from the library's root; raises UnknownNameError."""
    if name == "shared":
        roots = [library.root() / "shared"]
    elif (path := catalogue.resolve(name)) is not None:
        roots = _needs(read_spec(path, resolve=catalogue.resolve))
    elif name in catalogue.ENVIRONMENTS:
        roots = [catalogue.environment_files()[name].parent]
    else:
        choices = (*catalogue.COMPONENTS, *catalogue.PIPELINES, *catalogue.ENVIRONMENTS, "shared")
        raise UnknownNameError(
            f"the library has no component or pipeline {name!r}{text.name_suggestion(name, choices)}.",
            "Try `allranks list`.",
        )
    seen = dict.fromkeys(file for place in dict.fromkeys(roots) for file in _files_below(place))
    return [file.relative_to(library.root()) for file in seen]


def _needs(target: Component | Pipeline) -> list[Path]:
    """The files and folders that a component or pipeline consists of, its components and environments included."""
    if isinstance(target, Pipeline):
        own = target.source.file
        beside = [] if own is None else [own, own.with_suffix(".py")]
        return beside + [place for step in target.steps.values() for place in _needs(step.component)]
    folder = [] if target.source.file is None else [target.source.file.parent]
    environment = catalogue.environment_of(target.environment.reference or "")
    defined = [catalogue.environment_files()[environment].parent] if environment else []
    return [*folder, *target.includes, *defined]


def _files_below(place: Path) -> Iterator[Path]:
    """A file itself, or every file of a folder; what Python and caches leave behind stays out."""
    if place.is_file():
        yield place
    for here, folders, files in os.walk(place):
        folders[:] = sorted(name for name in folders if not name.endswith(("__pycache__", "_cache")))
        yield from (Path(here, name) for name in sorted(files) if not name.endswith((".pyc", ".pyo")))


def copy_files(files: list[Path], target: Path) -> None:
    """Copy files of the library below the target, keeping their relative places: all of them, or none.

    They are written aside, on the target's own disk, and renamed only when the last one is whole. Raises StorageError
    if the target cannot be written to.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".allranks-copy-", dir=target) as aside:
            for file in files:
                (Path(aside) / file).parent.mkdir(parents=True, exist_ok=True)
                copied = Path(shutil.copy(library.root() / file, Path(aside) / file))
                # An installed library may be read-only; a copy is to change.
                copied.chmod(copied.stat().st_mode | stat.S_IWUSR)
            for file in files:  # the folders first: one that cannot be made leaves nothing changed
                (target / file).parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                (Path(aside) / file).replace(target / file)
    except OSError as error:
        place = error.filename2 or error.filename or target
        raise StorageError(f"cannot write {place}: {error.strerror or error}.", "Name another folder.") from error


def _is_same(file: Path, copied: Path) -> bool:
    return copied.is_file() and filecmp.cmp(library.root() / file, copied, shallow=False)


def _print_result(args: argparse.Namespace, target: Path, files: list[Path], written: list[Path]) -> None:
    kept = len(files) - len(written)
    command = _next_command(args.name, target)
    if args.json:
        text.print_output({"written": [str(target / f) for f in written], "kept": kept, "next": command})
        return
    # Each component, pipeline file and environment by itself, shared/ as a whole.
    folders = Counter(Path(*file.parts[: 1 if file.parts[0] == "shared" else 2]) for file in written)
    for folder, number in folders.items():
        print(f"wrote {target / folder} ({with_count(number, 'file')})")
    if kept:
        print(f"left {kept} file{' that was' if kept == 1 else 's that were'} there already")
    if command:
        print(f"\nnext: {command}")


def _next_command(name: str, target: Path) -> str:
    """The command that runs the copy; empty for shared/ and environments, which do not run."""
    path = catalogue.resolve(name)
    if path is None:
        return ""
    copied = os.path.normpath(target / path.relative_to(library.root()))
    return example_command(read_spec(path, resolve=catalogue.resolve), copied)
