"""What ranks write while they run: ``metrics.jsonl``, one ``{"step", "total", "metrics": {name: number}}`` a line."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from allranks.wording import not_finite_words

_COMPARED = 256  # bytes before what is new: where they are others, the file was written anew


@dataclass(frozen=True, slots=True)
class MetricsEntry:
    """One line; what is no number is left out of its metrics, and the rest is as it was written."""

    step: Any
    total: Any
    metrics: dict[str, float]


class MetricsFollower:
    """A file that is read again and again while it grows: each look reads what was appended since the one before."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._identity = (0, 0)  # device and inode
        self._offset = 0
        self._last = b""  # that was read, up to the offset

    def read_new(self) -> tuple[list[MetricsEntry], bool]:
        """The new lines, and whether what was read before is gone: another attempt has begun, or the file was removed.

        A line that is only half written is left for the next look, however it goes on.
        """
        try:
            with _opened_file(self._file) as opened:
                about = os.fstat(opened.fileno())
                opened.seek(max(0, self._offset - len(self._last)))
                is_same = (about.st_dev, about.st_ino) == self._identity
                is_same = is_same and opened.read(len(self._last)) == self._last
                was_read = self._offset > 0
                if not is_same:
                    self._identity, self._offset, self._last = (about.st_dev, about.st_ino), 0, b""
                    opened.seek(0)
                return list(_entries(self._whole_lines(opened.read()))), was_read and not is_same
        except OSError:
            was_read, self._offset, self._last = self._offset > 0, 0, b""
            return [], was_read

    def _whole_lines(self, text: bytes) -> list[bytes]:
        """The lines that have ended, and the last one too if it is whole without an end."""
        end = text.rfind(b"\n") + 1
        if any(True for _ in _entries([text[end:]])):
            end = len(text)
        self._offset += end
        self._last = (self._last + text[max(0, end - _COMPARED) : end])[-_COMPARED:]
        return text[:end].splitlines()


def read_metrics(file: Path, most: int | None = None) -> Iterator[MetricsEntry]:
    """The lines of a file, or of its last so many bytes; one that is only half written is left for the next look."""
    return _entries(read_end(file, most).splitlines())


def _entries(lines: Iterable[bytes]) -> Iterator[MetricsEntry]:
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # the second of a thousand brackets that nobody closes
            continue
        if isinstance(entry, dict):
            values = entry.get("metrics")
            numbers = values.items() if isinstance(values, dict) else ()
            metrics = {_shown_name(name): value for name, value in numbers if _is_number(value)}
            yield MetricsEntry(entry.get("step"), entry.get("total"), metrics)


def _shown_name(name: str) -> str:
    """A name without halves of characters, which JSON can escape, and which no page and no terminal can show."""
    return name.encode(errors="replace").decode()


def _is_number(value: object) -> bool:
    """Whether it is a float or fits into one, as JSON's whole numbers need not."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)


def metrics_document(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics as JSON, which has no NaN and no infinities: these are texts that ``float`` reads."""
    return {name: not_finite_words(value) or value for name, value in metrics.items()}


def read_metrics_document(document: Mapping[str, float | str] | None) -> dict[str, float]:
    """The metrics of a step in run.json, as they were."""
    return {name: float(value) if isinstance(value, str) else value for name, value in (document or {}).items()}


def _opened_file(file: Path) -> BinaryIO:
    """A file that is open for reading; OSError of a pipe or a device, which may never end."""
    opened = os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError(errno.EINVAL, "it is not a file", str(file))
    return opened


def read_end(file: Path, most: int | None = None) -> bytes:
    """The last so many bytes of a file, or all; nothing if it cannot be read."""
    try:
        with _opened_file(file) as opened:
            if most is not None:
                opened.seek(max(0, opened.seek(0, 2) - most))
            return opened.read()
    except OSError:
        return b""
