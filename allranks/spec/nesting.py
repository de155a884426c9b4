"""Whether a YAML text nests too deeply to be composed: libyaml does it by recursion, and ends the interpreter."""

from __future__ import annotations

import re

import yaml

_CERTAIN = 1_000
"""A depth at which libyaml's recursion is certainly harmless."""
_BEFORE_TEXT = re.compile(r"^[ \t\-?:]*", re.MULTILINE)


def is_too_deep(text: str, loader: type, most: int) -> bool:
    """Whether a text nests deeper than ``most`` mappings and lists inside each other, without composing it.

    Nearly all texts are cleared by two counts: a block that lies deeper begins further to the right (a list that
    stands under its key does not, hence twice), and what lies deeper on one line opens a bracket or follows a dash.
    """
    furthest = max(len(match.group()) for match in _BEFORE_TEXT.finditer(text))
    if 2 * (furthest + 1) + text.count("[") + text.count("{") <= _CERTAIN:
        return False
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > most:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False
