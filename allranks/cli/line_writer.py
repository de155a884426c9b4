"""Writes lines into a pipe without waiting for its reader, until it has to."""

from __future__ import annotations

import os
import select
import time
from io import TextIOWrapper
from typing import TextIO

_ATOMIC = 4096  # bytes that a pipe which is ready takes at once and whole (PIPE_BUF of Linux)
_MOST_WAITING = 2**17  # bytes that wait for the reader before more is refused

_PAUSE = 0.01  # seconds


class LineWriter:
    """Lines for a stream; those that its reader is not ready for wait here, a few of them, until ``flush``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        # A notebook's stream has the descriptor of the terminal that its kernel was started in, not of the cell.
        is_file = isinstance(stream, TextIOWrapper)
        try:
            self._descriptor: int | None = stream.fileno() if is_file else None
        except (OSError, ValueError):  # a stand-in for a file, as tests have
            self._descriptor = None
        self._waiting = b""

    @property
    def is_ready(self) -> bool:
        """Whether further lines would be taken without waiting for long."""
        self._write(wait=False)
        return len(self._waiting) < _MOST_WAITING

    def write(self, lines: str) -> None:
        """Take whole lines; each write to a pipe is of whole lines as long as these are short enough."""
        if self._descriptor is None:
            self._stream.write(lines)
            return
        self._waiting += lines.encode(self._encoding, "replace")
        self._write(wait=len(self._waiting) >= 2 * _MOST_WAITING)

    def flush(self) -> None:
        """Wait until the reader has taken all."""
        if self._descriptor is None:
            self._stream.flush()
        else:
            self._write(wait=True)

    def _write(self, *, wait: bool) -> None:
        if self._descriptor is None or not self._waiting:
            return
        self._stream.flush()  # what was printed before
        view, start = self._waiting, 0
        while start < len(view) and select.select([], [self._descriptor], [], None if wait else 0)[1]:
            end = view.rfind(b"\n", start, start + _ATOMIC) + 1
            try:
                start += os.write(self._descriptor, view[start : end or start + _ATOMIC])
            except BlockingIOError:  # somebody has made the pipe so, and it has less room than it says
                time.sleep(_PAUSE)
        self._waiting = view[start:]
