"""Tracebacks and warnings that are shown to people: they name the user's file, and not the copy that the node ran."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.record_shapes import read_json_file
from allranks.local.snapshot import SnapshotFile

_WORK = "/work/"  # stands in the path of each copy
_FindSource = Callable[[str], Path | None]


class LogTraces:
    """Makes what a step has logged name the user's files; where these are is read when the first of them is met.

    A source that has changed since the snapshot was taken is not named: its lines are others now.

    Args:
        logs: the folder of the logs: of a step or a trial, of an earlier attempt, or a link to such a one.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._pointing: _Pointing | None = None

    def point(self, text: str) -> str:
        """Lines of a log as people are shown them."""
        if _WORK not in text:
            return text
        if self._pointing is None:
            folder = _step_of_logs(self._logs)
            code = [Path(one) for one in (read_json_file(folder.state) or {}).get("code", ())]
            self._pointing = _Pointing(folder, _source_in(code))
        return self._pointing.replace(text)


def point_at_sources(lines: Iterable[str], folder: StepFolder, files: Sequence[SnapshotFile]) -> tuple[str, ...]:
    """Lines as ``LogTraces`` has them, while the step's ``files`` are known."""
    pointing = _Pointing(folder, {file.path: file.source for file in files if file.members is None}.get)
    return tuple(map(pointing.replace, lines))


def _step_of_logs(logs: Path) -> StepFolder:
    """The step or trial whose ranks have written the logs in a folder."""
    path = logs.resolve().parent
    if path.parent.name == "attempts":
        path = path.parents[1]
    return StepFolder(path, path.parents[1] if path.parent.name == "trials" else None)


def _source_in(code: Sequence[Path]) -> _FindSource:
    """Finds a file of a snapshot in the component's code, or in what it includes, which ``code`` has after it."""

    def find(path: str) -> Path | None:
        first, *others = code or [Path()]
        places = [first / path, *(one.parent / path for one in (first, *others))]
        return next((place for place in places if place.is_file()), None)

    return find if code else lambda _: None


class _Pointing:
    """Puts the sources of one step in the place of its nodes' copies."""

    def __init__(self, folder: StepFolder, find: _FindSource) -> None:
        self._folder, self._find = folder, find
        copy = rf"{re.escape(str(folder.path))}/nodes/\d+/work/"
        self._pattern = re.compile(rf'(?<=File "){copy}(?P<traced>[^"\n]+)(?=")|{copy}(?P<warned>[^"\s:]+)(?=:\d)')
        self._unchanged: dict[str, str] = {}

    def replace(self, text: str) -> str:
        return self._pattern.sub(self._place, text)

    def _place(self, match: re.Match[str]) -> str:
        path = match["traced"] or match["warned"]
        if path not in self._unchanged:
            source = self._find(path)
            same = source is not None and _equal(source, self._folder.snapshot / path)
            self._unchanged[path] = str(source) if same else ""
        return self._unchanged[path] or match[0]


def _equal(source: Path, copy: Path) -> bool:
    try:
        return filecmp.cmp(source, copy, shallow=False)
    except OSError:
        return False
