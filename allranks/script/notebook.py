"""A notebook as the script of its code cells, in their order: each rank is a process, and there is nobody to click."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.errors import UsageError

_PRELUDE = "display = print  # of IPython; a rank has a log and no page\n"


@dataclass(frozen=True, slots=True)
class NotebookScript:
    """The text of the script, and what of the notebook is left out of it, such as ``cell 2: %pip install x``."""

    text: str
    left_out: tuple[str, ...]


def read_notebook(path: Path) -> NotebookScript:
    """Read the code cells of a notebook of format 4; raises UsageError if the file is none, or of another language.

    Lines for IPython alone (``%magic``, ``!command``, ``name?``) become comments, and so does a cell of ``%%magic``.
    """
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        sources = [cell["source"] for cell in cells]
        language = str(document.get("metadata", {}).get("kernelspec", {}).get("language") or "python")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(f"{str(path)!r} is no notebook: it is not JSON with cells.", "Save it again.") from None
    if language != "python":
        raise UsageError(f"{str(path)!r} is a notebook of {language}; ranks run Python.")
    parts, left_out = [], []
    for number, source in enumerate(sources, start=1):
        lines = (source if isinstance(source, str) else "".join(source)).splitlines()
        whole = bool(lines) and lines[0].startswith("%%")
        kept = [f"# %% cell {number} of {path.name}"]
        for line in lines:
            is_left_out = whole or line.lstrip().startswith(("%", "!")) or line.rstrip().endswith("?")
            kept.append(_commented(line) if is_left_out else line)
        found = [line.strip() for line in lines if _commented(line) in kept]
        left_out += [f"cell {number}: {line}" for line in (found[:1] if whole else found)]
        parts.append("\n".join(kept))
    shows = any("display(" in part for part in parts)
    return NotebookScript((_PRELUDE if shows else "") + "\n\n".join(parts) + "\n", tuple(left_out))


def _commented(line: str) -> str:
    """A line that does nothing, in a block that would be empty without it as well."""
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}pass  # left out: {line.strip()}"
