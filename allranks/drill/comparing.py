"""Whether two executions of a step have written the same: to the bit, but for what says when and how fast it was.

Times, speeds, memory, and names made for one run alone stand in files that are otherwise the result: they are blotted
out before these files are compared, and the files are named. Nothing is blotted out of a file that is no text.
"""

from __future__ import annotations

import filecmp
import json
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

_OF_THE_RUN = re.compile(
    r"(^|_|/)(time|times|seconds|date|created|duration|memory|memory_mb|throughput|teraflops|attempt|attempts|uuid"
    r"|run_id|host|hostname|pid|sha256|bytes|failed_saves|last_saved_step)(_|$|/)|_s$|_ms$|per_second|^time/",
    re.IGNORECASE,
)
"""Names of values that say when, how fast or where, and of which saves failed on the way: what the last one left is
compared itself. They are keys of JSON, or of a line ``key: value``."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?")
_OWN_NAME = re.compile(
    r"(?<![0-9A-Za-z])([0-9a-f]{8}x\d+|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,})(?![0-9A-Za-z])"
    r"|\d{8}-\d{6}-\d{3}-[0-9a-f]{4}"
)
_LOGGED = re.compile(r"(^|/)(metrics\.jsonl|events\.out\.tfevents\..*|.*\.log)$")
"""Files that tell how a run went, and not what came of it."""
_LONGEST_TEXT = 64 * 2**20
_MOST_SHOWN = 100  # characters of a line, or of members' names


@dataclass(slots=True)
class OutputComparison:
    """What two executions have written.

    Attributes:
        files_equal, bytes_equal: those that are equal to the bit.
        equal_but_for_times: files that are equal but for times, speeds and names of one run.
        not_compared: files that tell how a run went.
        differences: the others, each with what differs.
    """

    files_equal: int = 0
    bytes_equal: int = 0
    equal_but_for_times: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs, and something was compared."""
        return not self.differences and bool(self.files_equal or self.equal_but_for_times)


def compare_outputs(one: Mapping[str, Path], other: Mapping[str, Path]) -> OutputComparison:
    """Compare what two executions have written, by the name of each output."""
    found = OutputComparison()
    first, second = _files_by_name(one), _files_by_name(other)
    for name in sorted(first.keys() | second.keys()):
        if _LOGGED.search(name):
            found.not_compared.append(name)
        elif name not in first or name not in second:
            found.differences[name] = "is not there" if name in first else "is there besides"
        else:
            _compare_files(found, name, first[name], second[name])
    return found


def _compare_files(found: OutputComparison, name: str, one: Path, other: Path) -> None:
    if filecmp.cmp(one, other, shallow=False):
        found.files_equal += 1
        found.bytes_equal += one.stat().st_size
    elif what := _text_difference(one, other):
        found.differences[name] = what
    else:
        found.equal_but_for_times.append(name)


def _files_by_name(folders: Mapping[str, Path]) -> dict[str, Path]:
    """All files, by ``output/relative name``, with what is of one run alone blotted out of the name."""
    found: dict[str, Path] = {}
    for port, folder in folders.items():
        paths = (
            [folder]
            if folder.is_file()
            else sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        )
        for path in paths:
            inside = "" if path == folder else f"/{path.relative_to(folder).as_posix()}"
            name = f"{port}{_OWN_NAME.sub('*', inside)}"
            found[name if name not in found else f"{port}{inside}"] = path
    return found


def _text_difference(one: Path, other: Path) -> str:
    """What differs of two files, as lines where both are texts; empty if times and the like alone do."""
    if max(one.stat().st_size, other.stat().st_size) > _LONGEST_TEXT:
        return _archive_difference(one, other)
    try:
        lines = zip_longest(_read_lines(one), _read_lines(other), fillvalue="nothing")
    except UnicodeDecodeError:
        return _archive_difference(one, other)
    return next((f"has {b[:_MOST_SHOWN]} instead of {a[:_MOST_SHOWN]}" for a, b in lines if a != b), "")


def _read_lines(path: Path) -> list[str]:
    """The lines of a text, of JSON one for each value, without what is of one run alone."""
    text = path.read_bytes().decode()
    if path.suffix == ".json":
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text, object_pairs_hook=_own_left_out), separators=("", ": "), indent=0)
    return [_blotted_line(line) for line in text.splitlines()]


def _own_left_out(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_OWN_NAME.sub("*", key): value for key, value in sorted(dict(pairs).items()) if not _OF_THE_RUN.search(key)}


def _blotted_line(line: str) -> str:
    key, separator, _ = line.partition(":")
    is_own = separator and _OF_THE_RUN.search(key.strip().strip("'\"- "))
    return f"{key}: *" if is_own else _OWN_NAME.sub("*", _MOMENT.sub("*", line))


def _archive_difference(one: Path, other: Path) -> str:
    """What differs of two files that are no texts: members of archives by name; empty if these are equal."""
    try:
        with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
            members, others = ({info.filename: info.CRC for info in archive.infolist()} for archive in (first, second))
    except zipfile.BadZipFile:
        return "other bytes"
    changed = sorted(name for name in members.keys() | others.keys() if members.get(name) != others.get(name))
    return f"other members: {', '.join(changed)[:_MOST_SHOWN]}" if changed else ""
