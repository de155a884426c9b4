"""Files as documents: the user's, or the sources of Python's standard library."""

from __future__ import annotations

import errno
import fnmatch
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.data.formats.file_format import UNIT_BYTES, WrongFileError, find_file_fault, group_units
from shared.data.text.documents import Document, size_fault
from shared.data.write.request import BadFiles, SourceRequest
from shared.distributed import Refusal
from shared.storage import read_bytes, retry_transient

_LEFT_OUT = frozenset(
    """site-packages dist-packages test tests ensurepip venv idlelib tkinter turtledemo distutils lib2to3 pydoc_data
    __phello__ __pycache__""".split()  # noqa: SIM905  # a list of strings would be thirteen lines
)
"""Folders of the standard library that are not in the sample: what is not part of it, its tests, what some systems
install apart, and pydoc_data, a single file of 0.7 MB that would be half of the split it fell into."""

_PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")
"""The classes of the sample: packages of 13 to 33 files and 0.2 to 0.5 MB, all of them code that people wrote."""


@dataclass(frozen=True)
class FileDocuments:
    """One document in each file below the root; a unit is some of them, and `most` the bytes that one may have."""

    root: Path
    paths: list[str]
    labels: list[str]
    splits: list[str]
    units: list[range]
    sizes: list[int]
    most: int

    def read(self, unit: int, bad: BadFiles) -> Iterator[Document]:
        """Documents of a unit."""
        for item in self.units[unit]:
            try:
                text = read_text(self.root / self.paths[item], self.most)
            except WrongFileError as error:
                bad.report(self.paths[item], str(error))
                continue
            if text:
                yield Document(text, self.splits[item], self.labels[item])


def open_files(request: SourceRequest) -> FileDocuments:
    """The files of a folder whose names fit the pattern; the class of a file is the first folder on its way.

    Files without content are no documents and are passed over.

    Raises:
        Refusal: if there are none, if one has no class and needs one, or if a class has too few.
    """
    root, every = request.find_files()
    patterns = [pattern.strip() for pattern in request.pattern.split(",") if pattern.strip()]
    paths = [path for path in (path.relative_to(root) for path in every) if _fits(path, patterns)]
    if not paths:
        raise Refusal(f"none of the {len(every)} files in {root} fits the pattern {request.pattern!r}.")
    loose = [path.name for path in paths if len(path.parts) < 2]
    if request.labelled and loose:
        raise Refusal(
            f"{root}: {len(loose)} files, such as {loose[0]}, lie in no folder: the class of a file is the name of the "
            "folder that it is in. Put each file into the folder of its class."
        )
    return _files(request, root, paths)


def open_stdlib(request: SourceRequest) -> FileDocuments:
    """The standard library's sources, as the interpreter that runs this has them; a file's class is its package.

    Raises:
        Refusal: if data was given, or if this interpreter has no sources.
    """
    if request.folder is not None:
        raise Refusal("data was given, but dataset stdlib reads none: choose files, jsonl, csv or parquet.")
    root = Path(sysconfig.get_path("stdlib"))
    # site-packages, which may hold a hundred thousand files, is not even looked at.
    tops = [top for top in root.iterdir() if top.name not in _LEFT_OUT and not top.name.startswith("config-")]
    found = [path for top in tops for path in (top.rglob("*.py") if top.is_dir() else [top]) if path.suffix == ".py"]
    every = (path.relative_to(root) for path in sorted(found))
    paths = [path for path in every if not _LEFT_OUT.intersection(path.parts)]
    if request.labelled:
        paths = [path for path in paths if path.parts[0] in _PACKAGES]
    if len({path.parts[0] for path in paths}) < len(_PACKAGES):
        raise Refusal(f"the standard library in {root} comes without its sources; use another interpreter or dataset.")
    return _files(request, root, paths)


def _fits(path: Path, patterns: list[str]) -> bool:
    """Whether a pattern fits the file's name, or its whole path where the pattern has a slash."""
    return any(fnmatch.fnmatchcase(str(path) if "/" in pattern else path.name, pattern) for pattern in patterns)


def _files(request: SourceRequest, root: Path, paths: list[Path]) -> FileDocuments:
    request.bad.folder = root
    # What is no file, such as a broken link or a pipe, counts as a byte: it is reported when its turn comes.
    sizes = (1 if find_file_fault(root / path) else retry_transient((root / path).stat).st_size for path in paths)
    sized = list(zip(map(str, paths), sizes, strict=True))
    named = [(path, size) for path, size in sized if size]
    if not named:
        raise Refusal(f"all {len(sized)} files in {root} are empty.")
    names = [path for path, _ in named]
    labels = [path.partition("/")[0] if request.labelled else "" for path in names]
    splits = request.splitter.split_all(names, labels)
    units = group_units([size for _, size in named], UNIT_BYTES)
    unit_sizes = [sum(named[item][1] for item in unit) for unit in units]
    return FileDocuments(root, names, labels, splits, units, unit_sizes, request.most_bytes)


def read_text(path: Path, most: int) -> str:
    """Read a file of at most so many bytes.

    Raises:
        WrongFileError: it is larger, is no text in UTF-8, or cannot be read.
    """
    if fault := find_file_fault(path):
        raise WrongFileError(fault)
    try:
        data = read_bytes(path, most)
    except OSError as error:
        fault = size_fault(path.stat().st_size, most) if error.errno == errno.EFBIG else ""
        raise WrongFileError(fault or f"cannot be read: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is 0x{data[error.start]:02x}"
        raise WrongFileError(f"is not text in UTF-8: {where}, {error.reason}") from error
