"""What ranks have printed, as people are shown it: nothing in it that a terminal would obey."""

from __future__ import annotations

import re

_UNUSUAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\U00010000-\U0010ffff]")  # said as [^…] it compiles for 9 ms
_STYLE = re.compile(r"\x1b\[[\d;:]*m")
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: the cursor, erasing, colours
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\|$)"  # OSC and its like: titles, links
    r"|\x1b[ -/]*[0-~]?"  # all others
)
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
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
    plain = re.sub(r"[\x00-\x08\x0a-\x1a\x1c-\x1f\x7f-\x9f]", "", kept)
    return plain + _RESET if "\x1b" in plain else plain
