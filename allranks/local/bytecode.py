"""Bytecode of a snapshot's modules, compiled once: a node's files are new in each run, and each rank compiled them.

It lies beside them as Python's own does, in the form that holds for a text and not for a time
(https://peps.python.org/pep-0552/): an interpreter that finds another text compiles that, as ever.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import shutil
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from allranks.files import write_bytes
from allranks.local.private_files import make_private_folder
from allranks.local.snapshot import SnapshotFile

_MOST_BYTES = 1 << 20  # of a module
_MOST_KEPT = 4000  # modules: some forty versions of what a component takes along
_CHECKED_HASH = (3).to_bytes(4, "little")


def add_bytecode(files: Sequence[SnapshotFile], works: Sequence[Path], kept: Path) -> None:
    """Lay the bytecode of all modules into the nodes' working folders, for the interpreter that runs this.

    Args:
        files: of the snapshot.
        works: the working folders, which hold its files.
        kept: the folder in which bytecode is kept from run to run, made if absent; where it cannot be written to
            nothing is laid anywhere, and the ranks compile for themselves.
    """
    modules = [file.path for file in files if file.path.endswith(".py") and file.members is None]
    if not modules or not works:
        return
    with suppress(OSError):
        make_private_folder(kept)
        for path in modules:
            code = _bytecode(works[0] / path, kept)
            if code is None:
                continue
            for work in works:
                place = Path(importlib.util.cache_from_source(str(work / path), optimization=""))
                if work in place.parents:  # and not where PYTHONPYCACHEPREFIX says
                    place.parent.mkdir(exist_ok=True)
                    shutil.copyfile(code, place)
        _drop_oldest(kept)


def _bytecode(module: Path, kept: Path) -> Path | None:
    """The file with a module's bytecode; None where it has none, or Python has something to say of its text."""
    source = module.read_bytes()
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER + source).hexdigest()
    file = kept / digest
    if file.exists():
        return file
    if len(source) > _MOST_BYTES:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            code = compile(source, module.name, "exec", dont_inherit=True, optimize=0)
        except (SyntaxError, ValueError, Warning, RecursionError, MemoryError, OverflowError):
            return None
    header = importlib.util.MAGIC_NUMBER + _CHECKED_HASH + importlib.util.source_hash(source)
    write_bytes(file, header + marshal.dumps(code))
    return file


def _drop_oldest(kept: Path) -> None:
    """Keep no more than there is room for, those that were made last."""
    found = list(os.scandir(kept))
    if len(found) > _MOST_KEPT:
        found.sort(key=lambda entry: entry.stat().st_mtime)
        for entry in found[: len(found) - _MOST_KEPT * 3 // 4]:
            Path(entry.path).unlink(missing_ok=True)
