"""Lines on standard error that stay lines, though several threads write: text and end in one piece."""

from __future__ import annotations

import sys


def print_line(text: str) -> None:
    """Write a line to standard error; `print` writes its end apart, and another thread's text may come between."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
