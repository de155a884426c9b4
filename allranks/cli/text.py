"""What the verbs share when they write for people: aligned rows, ages, sizes, the nearest name."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence


def rows(lines: Sequence[Sequence[str]], *, indent: str = "  ", keep_whole: bool = False) -> str:
    """Align lines of cells in columns, two spaces apart.

    On a terminal a line is cut at the right edge, with an ellipsis, unless ``keep_whole``; into a pipe it never is.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() and not keep_whole else 0
    return "\n".join(_row(cells, widths, indent, edge) for cells in lines)


def _row(cells: Sequence[str], widths: Sequence[int], indent: str, edge: int) -> str:
    kept = [(cell, width) for cell, width in zip(cells, widths, strict=True) if width]
    line = (indent + "  ".join(cell.ljust(width) for cell, width in kept)).rstrip()
    return line[: edge - 1] + "…" if edge and len(line) > edge else line


def nearest(word: str, choices: Iterable[str]) -> str:
    """`` (did you mean 'list'?)`` when one of the choices is like the word, otherwise nothing."""
    import difflib

    known = {choice.casefold(): choice for choice in choices}
    match = difflib.get_close_matches(word.casefold().replace("-", "_"), known, n=1, cutoff=0.6)
    return f" (did you mean {known[match[0]]!r}?)" if match else ""


def seconds(duration: float) -> str:
    """A duration as people write it: ``0.4 s``, ``1 min 05 s``, ``2 h 03 min``."""
    if duration < 60:
        return f"{duration:.1f} s"
    minutes, rest = divmod(round(duration), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
