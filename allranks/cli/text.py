"""What the verbs share when they write for people: aligned rows, ages, sizes, the nearest name."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.log_text import clean_text

NARROW_WIDTH = 60
"""A terminal of fewer columns has its lines broken rather than cut: too little would be left of them."""

YAML_SUFFIXES = (".yaml", ".yml")


def print_output(output: str | Mapping[str, Any]) -> None:
    """Print a text for people as it is, and a document for programs as JSON."""
    import json

    print(clean_text(output, styled=False) if isinstance(output, str) else json.dumps(output, indent=1))


def print_note(note: object) -> None:
    """Print what a person should know on standard error."""
    print(shown_message(f"note: {note}"), file=sys.stderr)


def shown_message(text: str) -> str:
    """Return a message without secrets, and without what a terminal would obey: it may quote anybody's file."""
    from allranks.redaction import redact

    return redact(clean_text(text, styled=False))


def aligned_rows(lines: Sequence[Sequence[str]], *, indent: str = "  ", keep_whole: bool = False) -> str:
    """Align lines of cells in columns, two spaces apart.

    On a terminal a line is cut at the right edge, with an ellipsis, unless ``keep_whole``; into a pipe it never is.
    """
    lines = [[clean_text(cell, styled=False) for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    edge = 0 if keep_whole else terminal_width() or 0
    edge = edge if edge >= NARROW_WIDTH else 0
    return "\n".join(_row(cells, widths, indent, edge) for cells in lines)


def _row(cells: Sequence[str], widths: Sequence[int], indent: str, edge: int) -> str:
    kept = [(cell, width) for cell, width in zip(cells, widths, strict=True) if width]
    line = (indent + "  ".join(cell.ljust(width) for cell, width in kept)).rstrip()
    return line[: edge - 1] + "…" if edge and len(line) > edge else line


def terminal_width() -> int | None:
    """The width of the terminal; None where the output goes somewhere else."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def name_suggestion(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """`` (did you mean 'list'?)`` when one of the choices is like the word, otherwise nothing."""
    import difflib

    known = {choice.casefold().replace("-", "_"): choice for choice in choices}
    match = difflib.get_close_matches(word.casefold().replace("-", "_"), known, n=1, cutoff=cutoff)
    return f" (did you mean {known[match[0]]!r}?)" if match else ""


def why_no_yaml(name: str) -> str:
    """Why a path is no YAML file that could be read; empty where the text does not look like a path."""
    path = Path(name)
    if path.is_dir():
        return f"{name!r} is a folder, not a YAML file"
    if path.is_file():
        return f"{name!r} is not a YAML file (.yaml or .yml)"
    if path.is_symlink():
        return f"{name!r} is a link that leads to no file"
    if path.suffix not in (*YAML_SUFFIXES, ".py") and "/" not in name:
        return ""
    beside = [each.name for each in path.parent.glob("*") if each.suffix in YAML_SUFFIXES]
    # A cutoff higher than elsewhere: two file names are much alike by their ending alone.
    return f"there is no file {name!r}{name_suggestion(path.name, beside, cutoff=0.8)}"


def open_in_browser(address: str) -> None:
    """Open a page where there is a screen: else the standard library would start a text browser in this terminal."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        import webbrowser

        webbrowser.open(address)


def one_line(text: str) -> str:
    """What a script has logged, without what a terminal would obey."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
