"""Whether a path can be opened as a file at all, asked before it is: a pipe keeps its reader waiting for ever."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

_KINDS: Mapping[Callable[[int], bool], str] = MappingProxyType(
    {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
)


def find_file_fault(path: Path) -> str:
    """What keeps a path from being read as a file, as a sentence goes on after it; empty if nothing does."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISREG(mode):
        return ""
    return f"is {next((word for test, word in _KINDS.items() if test(mode)), 'a device')}, not a file"


def is_utf8(text: str) -> bool:
    """Whether a name or a text was UTF-8 where it was read: bytes that are none come as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_name_fault(path: Path) -> str:
    """What is wrong with a path's name for a reader that wants text; empty if nothing is."""
    return "" if is_utf8(str(path)) else "has a name that is not UTF-8: rename it"


def show_name(name: str) -> str:
    r"""A name as it can be printed and written: bytes that are not UTF-8 as \x and two digits."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
