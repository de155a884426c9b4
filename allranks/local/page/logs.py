"""The logs of a step's ranks in pieces: the end of each, what comes before, and the lines that hold a text."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from allranks.local.folders import StepFolder
from allranks.log_text import clean_text
from allranks.redaction import redact

PIECE = 1 << 16
"""Bytes of a log that are shown at once."""

MOST_FOUND = 200
"""Lines that a search shows; it counts all."""

_LONGEST_LINE = 2000  # characters of a line that a search shows


Pointing: TypeAlias = Callable[[str], str]
"""What makes a text of a log name the user's files, such as that of ``traces.LogTraces``."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Whole lines of a log, secrets blotted out, and where they lie in it: bytes from ``start`` to ``end``."""

    start: int
    end: int
    size: int
    text: str


def step_logs(step: StepFolder) -> dict[str, Path]:
    """The logs of a step by the name that pages show, those of earlier attempts last."""
    found = {path.name: path for path in _ordered(step.logs)}
    for folder in sorted(step.path.glob("attempts/*/user_logs"), key=lambda path: (len(str(path)), path)):
        found |= {f"attempt {folder.parent.name}: {path.name}": path for path in _ordered(folder)}
    return found


def _ordered(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.txt"), key=lambda path: (len(path.name), path.name))


def log_before(log: Path, end: int | None = None, most: int = PIECE, point: Pointing = str) -> LogPiece:
    """The lines before a byte, or the end of the log: whole lines of at most so many bytes, changed by ``point``."""
    size = _size(log)
    end = size if end is None else min(end, size)
    start = max(0, end - most)
    raw = _read(log, start, end)
    if start:  # the first line may be cut; if the piece is one line, so be it
        cut = raw.find(b"\n") + 1
        raw, start = raw[cut:], start + cut
    return LogPiece(start, end, size, point(_shown(raw)))


def log_after(log: Path, start: int, most: int = PIECE, point: Pointing = str) -> LogPiece:
    """The whole lines from a byte on; a log that has become shorter, for a new attempt, is read from its beginning."""
    size = _size(log)
    start = start if start <= size else 0
    raw = _read(log, start, min(size, start + most))
    whole = raw[: raw.rfind(b"\n") + 1] or (raw if len(raw) == most else b"")
    return LogPiece(start, start + len(whole), size, point(_shown(whole)))


def _shown(raw: bytes) -> str:
    return redact(clean_text(raw.decode(errors="replace"), styled=False))


def search_log(log: Path, wanted: str, most: int = MOST_FOUND) -> tuple[list[tuple[int, str]], int]:
    """The first lines that hold a text, whatever its case, each with where it begins in bytes; and how many do."""
    if not wanted or not _size(log):
        return [], 0
    pattern = re.compile(re.escape(wanted.encode()), re.IGNORECASE)
    found: list[tuple[int, str]] = []
    count = 0
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for start, end in _lines(content, pattern):
            count += 1
            if len(found) < most:
                line = _shown(bytes(content[start:end]))
                found.append((start, line[:_LONGEST_LINE]))
    return found, count


def _lines(content: mmap.mmap, pattern: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    """Where each line that holds a match begins and ends."""
    position = 0
    while (match := pattern.search(content, position)) is not None:
        start = content.rfind(b"\n", 0, match.start()) + 1
        end = content.find(b"\n", match.end())
        end = len(content) if end < 0 else end
        yield start, end
        position = end + 1


def _read(log: Path, start: int, end: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(start)
            return file.read(end - start)
    except OSError:
        return b""


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
