"""The YAML files of the project around a target, by the ``name`` that each states; nothing is parsed here.

A project is what git says it is. Without git it is the topmost folder above the target that holds what projects hold
at their top; never the home folder, the folder of temporary files or the root of the file system.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from allranks.local.folders import RUNS_MARK

MOST_ENTRIES = 20_000
"""Files and folders that are looked at, the nearest first."""

MOST_YAML_FILES = 5_000
"""YAML files that are opened."""

_MOST_BYTES = 2**16
"""Of a YAML file that are looked through for its name, which stands among the first lines."""

_MOST_IN_FOLDER = 10_000
"""Entries of one folder: more are images or texts, and what lies beside it still has to be found."""

_SUFFIXES = (".yml", ".yaml")
_MARKS = (".gitignore", ".gitattributes", ".github", ".amlignore", ".azureml", "pyproject.toml", "allranks-map.yaml")
"""What stands at the top of a project; the first three also where it was downloaded without git."""

_SKIPPED = frozenset({"node_modules", "site-packages", "venv", "mlruns", "build", "dist"})
_OTHERS = frozenset({RUNS_MARK, "pyvenv.cfg", "conda-meta"})
"""A folder that holds one is a runs folder, a cache, or an environment."""

_NAME = re.compile(
    rb"""^(?:\xef\xbb\xbf)?["']?name["']?[ \t]*:[ \t]+"""
    rb"""(?:"([^"\n]+)"|'([^'\n]+)'|([^\s#"'][^\n#]*?))[ \t]*(?:\#.*)?\r?$""",
    re.MULTILINE,
)


def project_root(folder: Path) -> Path:
    """The topmost folder of the project that ``folder`` belongs to; ``folder`` itself where nothing says more."""
    around = [folder, *folder.parents]
    allowed = around[: next((at for at, one in enumerate(around) if one in _never()), len(around))]
    for one in allowed:
        if (one / ".git").exists():
            return one
    marked = [one for one in allowed if any((one / mark).exists() for mark in _MARKS)]
    return marked[-1] if marked else folder


def _never() -> set[Path]:
    """Folders that hold more than one project, and all above them."""
    shared = (Path.home(), Path(tempfile.gettempdir()))
    return {above for one in shared for path in (one, one.resolve()) for above in (path, *path.parents)}


@dataclass(slots=True)
class CheckoutFiles:
    """The named YAML files of a project, found when somebody first asks.

    Attributes:
        folder: the target's; what is nearest to it is looked at first.
        opened: number of YAML files that were read so far.
        is_partial: whether a limit was met, so that there are files that nobody has looked at.
    """

    folder: Path
    opened: int = 0
    is_partial: bool = False
    _named: dict[str, list[Path]] | None = field(default=None, repr=False)

    def named(self, name: str) -> list[Path]:
        """The YAML files whose top level says ``name: NAME``, in the order of their paths."""
        if self._named is None:
            self._named = {}
            for path in self._yaml_files():
                if (found := _stated_name(path)) is not None:
                    self._named.setdefault(found, []).append(Path(path))
        return sorted(self._named.get(name, ()))

    def _yaml_files(self) -> Iterator[str]:
        for entry in self._entries():
            if entry.name.endswith(_SUFFIXES) and entry.is_file():
                if self.opened == MOST_YAML_FILES:
                    self.is_partial = True
                    return
                self.opened += 1
                yield entry.path

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """What lies in the project: below the target's folder first, then below each folder above it."""
        left, seen, is_deep = MOST_ENTRIES, set(), self.folder not in _never()
        for level in map(str, _levels(self.folder)):
            waiting = deque([level])
            while waiting:
                here = waiting.popleft()
                if here in seen:
                    continue
                seen.add(here)
                entries = _list_folder(here)
                if len(entries) > min(left, _MOST_IN_FOLDER):
                    self.is_partial = True
                    if left < _MOST_IN_FOLDER:
                        return
                    entries.pop()
                left -= len(entries)
                if here == level or not _is_foreign(entries):
                    waiting += [one.path for one in entries if is_deep and _is_walked(one)]
                    yield from entries


def _levels(folder: Path) -> list[Path]:
    root = project_root(folder)
    return [one for one in (folder, *folder.parents) if one.is_relative_to(root)]


def _list_folder(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return [entry for _, entry in zip(range(_MOST_IN_FOLDER + 1), found, strict=False)]
    except OSError:
        return []  # nobody may look into it, or it has just gone


def _is_foreign(entries: list[os.DirEntry[str]]) -> bool:
    """Whether a folder is an environment, a cache, or another clone; a submodule, whose .git is a file, is not."""
    return any(one.name in _OTHERS or (one.name == ".git" and one.is_dir()) for one in entries)


def _is_walked(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith((".", "__")) or entry.name in _SKIPPED:
        return False
    return entry.is_dir(follow_symlinks=False)


def _stated_name(path: str) -> str | None:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 thousands of them
            match = _NAME.search(file.read(_MOST_BYTES) or b"")
    except OSError:
        return None
    return None if match is None else (match[1] or match[2] or match[3]).decode("utf-8", "replace").strip()
