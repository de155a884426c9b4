"""Files that are written whole or not at all, and standard streams that are closed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def write_text(path: Path, text: str, *, follow_links: bool = True) -> None:
    """Write a text file; who is killed meanwhile, or finds the disk full (OSError), leaves what was there before.

    It is written aside and renamed. A link stays one, and what is no file, such as ``/dev/stdout``, is written to.
    Without ``follow_links`` the file takes the place of a link, and the target of the link is kept.
    """
    write_bytes(path, text.encode(), follow_links=follow_links)


def write_bytes(path: Path, content: bytes, *, follow_links: bool = True) -> None:
    """Write any file as ``write_text`` writes one of text."""
    if follow_links and path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve() if follow_links else path.absolute()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def write_files(texts: Mapping[Path, str]) -> None:
    """Write several text files, folders included: all of them, or none where one cannot be written (OSError)."""
    aside: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            aside[path] = path.with_name(f".{path.name}.{os.getpid()}")
            aside[path].write_text(text, encoding="utf-8")
        for path, written in aside.items():
            written.replace(path)
    except OSError:
        for written in aside.values():
            with suppress(OSError):
                written.unlink(missing_ok=True)
        raise


def open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed, as after ``<&-``.

    Otherwise the next file or socket gets its number, and a child process cannot inherit it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # the lowest free descriptor is the stream's own
            stream = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: PTH123, SIM115 it stays open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
