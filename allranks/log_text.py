"""What ranks have printed, as people are shown it: nothing in it that a terminal would obey."""

from __future__ import annotations

import re

_DIRECTION = "\u202a-\u202e\u2066-\u2069"
"""What turns the direction of a text, and can hide what it says: https://www.unicode.org/reports/tr36/#Bidirectional."""
# With [^...] this pattern would take 9 ms to compile.
_UNUSUAL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTION}\U00010000-\U0010ffff]")
_STYLE = re.compile(r"\x1b\[[\d;:]*m")
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: the cursor, erasing, colours
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|$)"  # OSC and its like: titles, links
    r"|\x1b[ -/]*[0-~]?"  # all others
)
_CONTROLS = re.compile(rf"[\x00-\x08\x0a-\x1f\x7f-\x9f{_DIRECTION}]")
_RESET = "\x1b[0m"


def clean_text(text: str, *, styled: bool) -> str:
    """Lines as they were last drawn, without what a terminal would obey but for colours where ``styled``."""
    lines = text.split("\n")
    return "\n".join([_clean(line, styled=styled) if _UNUSUAL.search(line) else line for line in lines])


def _clean(line: str, *, styled: bool) -> str:
    if "\r" in line:
        drawn = [part for part in line.split("\r") if _SEQUENCES.sub("", part).strip()]
        line = drawn[-1] if drawn else ""
    if not styled:
        return _CONTROLS.sub("", _SEQUENCES.sub("", line))
    kept = _SEQUENCES.sub(lambda found: found[0] if _STYLE.fullmatch(found[0]) else "", line)
    plain = re.sub(rf"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f{_DIRECTION}]", "", kept)
    return plain + _RESET if "\x1b" in plain else plain
