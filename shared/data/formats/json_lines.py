"""JSON lines: an object on each line. Plain files are read from any line on, gzipped ones from the front."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

from shared.data.formats.file_format import (
    READ_ERRORS,
    UNIT_BYTES,
    FileFormat,
    FilePart,
    FileRow,
    WrongFileError,
    is_gzipped,
    open_bytes,
    read_budget,
)
from shared.distributed import Refusal
from shared.storage import open_file, retry_transient

_PIECE = 2**20
_ESCAPED = 6
"""Bytes on the line for one of the text, at most: a control character is written \\u0000."""


class JsonLines(FileFormat):
    """What is particular to JSON lines."""

    suffixes = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

    def header(self, path: Path) -> list[str]:
        """The keys on the first line."""
        try:
            with open_bytes(path) as file:
                line = file.readline(read_budget().json_line_bytes)
            first = json.loads(line)
        except (*READ_ERRORS, ValueError, RecursionError) as error:
            raise WrongFileError(f"does not begin with an object of JSON on one line: {error}") from error
        if not isinstance(first, dict):
            raise Refusal(f"{path} begins with {line[:40]!r}: each line has to be an object of JSON, such as "
                          '{"text": "..."}.')  # fmt: skip
        return list(first)

    def parts(self, path: Path) -> list[FilePart]:
        """Ranges of bytes; a line belongs to the range in which it begins."""
        size = retry_transient(path.stat).st_size
        if is_gzipped(path):
            return [FilePart(path, 0, sys.maxsize, size)]
        count = max(1, round(size / UNIT_BYTES))
        bounds = [size * number // count for number in range(count + 1)]
        return [FilePart(path, a, b, b - a) for a, b in pairwise(bounds)]

    def rows(self, part: FilePart, names: Sequence[str], most: int) -> Iterator[FileRow]:
        """Lines of a part; empty ones are passed over."""
        try:
            for at, line in enumerate(_lines(part, _ESCAPED * most + 2**16), start=1):
                if line is None:
                    yield FileRow(at, fault=f"is longer than a text of max_megabytes {most / 2**20:g} can be")
                elif line.strip():
                    yield _row(at, line, names)
        except READ_ERRORS as error:
            raise WrongFileError(f"cannot be read: {error}") from error

    def place(self, part: FilePart, at: int) -> str:
        """Number of a line."""
        if not part.first:
            return str(at)
        before, left = 0, part.first
        with open_file(part.path) as file:
            while left and (piece := file.read(min(_PIECE, left))):
                before, left = before + piece.count(b"\n"), left - len(piece)
            if not piece.endswith(b"\n"):
                before += 1  # the line that began in the part before
        return str(before + at)


def _row(at: int, line: bytes, names: Sequence[str]) -> FileRow:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return FileRow(at, fault=f"is not JSON in UTF-8: {str(error)[:100]}")
    if not isinstance(found, dict):
        return FileRow(at, fault=f"is {line[:40]!r}, not an object of JSON")
    return FileRow(at, [found.get(name) for name in names])


def _lines(part: FilePart, most: int) -> Iterator[bytes | None]:
    """Lines that begin in a part; None for one of more bytes than ``most``, of which no more are held."""
    with open_bytes(part.path) as file:
        at = part.first
        if at:  # the line that has the byte before belongs to the part before
            file.seek(at - 1)
            at += sum(map(len, _rest(file))) - 1
        while at < part.last and (line := file.readline(most)):
            at += len(line)
            if len(line) == most and not line.endswith(b"\n"):
                at += sum(map(len, _rest(file)))
                yield None
            else:
                yield line


def _rest(file: IO[bytes]) -> Iterator[bytes]:
    """What is left of a line, in pieces."""
    while piece := file.readline(_PIECE):
        yield piece
        if piece.endswith(b"\n"):
            return
