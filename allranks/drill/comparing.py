"""Whether two executions of a step have written the same: to the bit, but for what says when and how fast it was.

Times, speeds, memory, and names made for one run alone stand in files that are otherwise the result: they are blotted
out before these files are compared, and the files are named. Nothing is blotted out of a file that is no text.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allranks.drill.tensor_files import largest_difference

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
_MOST_SHOWN = 20


@dataclass(slots=True)
class OutputComparison:
    """What two executions have written.

    Attributes:
        files, bytes: those that are equal to the bit.
        but_for_times: files that are equal but for times, speeds and names of one run.
        not_compared: files that tell how a run went.
        differences: the others, each with what differs.
    """

    files: int = 0
    bytes: int = 0
    but_for_times: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs, and something was compared."""
        return not self.differences and bool(self.files or self.but_for_times)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "files_equal": self.files,
            "bytes_equal": self.bytes,
            "equal_but_for_times": self.but_for_times,
            "not_compared": self.not_compared,
            "differences": dict(self.differences),
        }


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
    if _digest(one) == _digest(other):
        found.files += 1
        found.bytes += one.stat().st_size
    elif (what := _text_difference(one, other) or _archive_difference(one, other)) is not None:
        if what == _ONLY_TIMES:
            found.but_for_times.append(name)
        else:
            found.differences[name] = what
    else:
        found.differences[name] = largest_difference(one, other) or "other bytes"


def _files_by_name(folders: Mapping[str, Path]) -> dict[str, Path]:
    """All files, by ``output/relative name``, with what is of one run alone blotted out of the name."""
    found: dict[str, Path] = {}
    for port, folder in folders.items():
        paths = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.is_file())
        for path in paths:
            inside = "" if path == folder else f"/{path.relative_to(folder).as_posix()}"
            if "__pycache__" in path.parts:
                continue
            name = f"{port}{_OWN_NAME.sub('*', inside)}"
            found[name if name not in found else f"{port}{inside}"] = path
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


_ONLY_TIMES = "times"


def _text_difference(one: Path, other: Path) -> str | None:
    """``times`` if nothing else differs, or what does; None of what is no text."""
    texts = _read_text(one), _read_text(other)
    if texts[0] is None or texts[1] is None:
        return None
    if one.suffix == ".json":
        try:
            a, b = json.loads(texts[0]), json.loads(texts[1])
        except (ValueError, RecursionError):
            pass
        else:
            where = next(_json_differences(a, b, ""), None)
            return where or _ONLY_TIMES
    lines, others = (_blotted(text).splitlines() for text in (texts[0], texts[1]))
    if lines == others:
        return _ONLY_TIMES
    number = next(
        (n for n, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b), min(len(lines), len(others))
    )
    return f"other text from line {number + 1} on"


def _read_text(path: Path) -> str | None:
    if path.stat().st_size > _LONGEST_TEXT:
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def _blotted(text: str) -> str:
    kept = []
    for line in text.splitlines():
        key, separator, _ = line.partition(":")
        is_own = separator and _OF_THE_RUN.search(key.strip().strip("'\"- "))
        kept.append(f"{key}: *" if is_own else _OWN_NAME.sub("*", _MOMENT.sub("*", line)))
    return "\n".join(kept)


def _json_differences(one: Any, other: Any, where: str) -> Iterator[str]:
    """The places where two documents differ in more than times."""
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = ({_OWN_NAME.sub("*", str(k)): v for k, v in d.items()} for d in (one, other))
        for key in [*first, *(key for key in second if key not in first)]:
            if _OF_THE_RUN.search(key):
                continue
            if key not in first or key not in second:
                yield f"{where}{key} is {'not there' if key in first else 'there besides'}"
            else:
                yield from _json_differences(first[key], second[key], f"{where}{key}.")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _json_differences(a, b, f"{where}{number}.")
    elif isinstance(one, str) and isinstance(other, str):
        if _blotted(one) != _blotted(other):
            yield f"{where.rstrip('.') or 'the text'} is {other[:60]!r}, was {one[:60]!r}"
    elif one != other and str(one) != str(other):  # NaN is NaN here
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        yield (
            f"{where.rstrip('.') or 'the value'} is {other!r}, was {one!r}"
            if numbers
            else f"{where.rstrip('.')} differs"
        )


def _archive_difference(one: Path, other: Path) -> str | None:
    """Of two zip archives (.npz, .keras, .pt), whose bytes hold times: what differs in their members, if anything."""
    if not (zipfile.is_zipfile(one) and zipfile.is_zipfile(other)):
        return None
    try:
        with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
            members, others = ({info.filename: info.CRC for info in archive.infolist()} for archive in (first, second))
    except zipfile.BadZipFile:
        return None
    changed = sorted(name for name in members.keys() | others.keys() if members.get(name) != others.get(name))
    shown = ", ".join(changed[:_MOST_SHOWN])
    return f"other members: {shown}" if changed else _ONLY_TIMES
