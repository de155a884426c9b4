"""Copying files and folders where storage may be a mounted blob store; see `shared.storage`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from shared.storage import RandomReads, list_entries, make_folder, write_file

_PIECE: Final = 2**24
"""Bytes that are read before they are written."""


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; its folder is there."""

    def content() -> Iterator[bytearray]:
        with closing(RandomReads(source)) as reads:
            for start in range(0, reads.size, _PIECE):
                yield reads.read(start, min(_PIECE, reads.size - start))

    write_file(target, content)


def copy_folder(source: Path, target: Path, left_out: Callable[[str, list[str]], set[str]]) -> None:
    """Copy a folder without those that `left_out` names, which `shutil.ignore_patterns` makes."""
    make_folder(target)
    names = sorted(entry.name for entry in list_entries(source))
    for name in (name for name in names if name not in left_out(str(source), names)):
        if (source / name).is_dir():
            copy_folder(source / name, target / name, left_out)
        else:
            copy_file(source / name, target / name)
