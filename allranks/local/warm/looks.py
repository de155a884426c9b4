"""At which variables imports have looked. An interpreter that does not know allranks loads this too."""

from __future__ import annotations

import collections.abc
import os
import sys
from collections.abc import Collection, ItemsView, Iterator, Mapping, ValuesView

ANY = "*"
"""What a look at all variables that begin so ends with; alone, at each."""
_WALKS = {"tqdm.utils": b"TQDM_", "fsspec.config": b"FSSPEC"}
"""Modules that go through all variables, and with which letters those begin that they are after."""
_OF_PYTHON = (os.__name__, collections.abc.__name__)
_WALKING = (ItemsView.__iter__.__code__, ValuesView.__iter__.__code__)


class ReadVariables(dict[bytes, bytes]):
    """The variables as ``os.environ`` holds them; remembers in ``looks`` what was asked for, there or not.

    Who goes through all of them may be after any, also after one that is not there, but for a few whose text was read.
    """

    def __init__(self, data: Mapping[bytes, bytes]) -> None:
        super().__init__(data)
        self.looks = set[bytes]()

    def __getitem__(self, key: bytes) -> bytes:
        if sys._getframe(2).f_code not in _WALKING:  # noqa: SLF001 else its walk is known already
            self.looks.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, bytes):
            self.looks.add(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[bytes]:
        frame = sys._getframe(1)  # noqa: SLF001 there is no other way to learn who asks
        while frame.f_back is not None and frame.f_globals.get("__name__") in _OF_PYTHON:
            frame = frame.f_back
        self.looks.add(_WALKS.get(frame.f_globals.get("__name__", ""), b"") + ANY.encode())
        return super().__iter__()


def has_looked(looks: Collection[str], name: str) -> bool:
    """Whether there was a look at a variable."""
    return name in looks or any(one.endswith(ANY) and name.startswith(one[:-1]) for one in looks)
