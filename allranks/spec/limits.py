"""How large a document may be: all limits in one place, each far above what people write, and said when it is met.

Without them a file of a few lines can take the memory of a machine, end the interpreter, or never end.
"""

from __future__ import annotations

import re

import yaml

MOST_FILE_BYTES = 8 * 2**20
"""Of one YAML file."""

MOST_DEPTH = 100
"""Mappings and lists inside each other. libyaml composes them by recursion, unchecked: 30,000 end the interpreter."""

TOO_DEEP = f"is nested too deeply to be read: more than {MOST_DEPTH} mappings and lists inside each other."

MOST_DIGITS = 300
"""Of an integer. Python refuses to write more than 4,300, and no double holds more than 309."""

MOST_NESTED = 20
"""Pipelines inside each other, over files."""

MOST_STEPS = 5_000
"""Of a pipeline, with those of its nested pipelines: ten files that name each other four times have a million."""

MOST_RANKS = 10_000
"""Of a step that is run or planned on this machine: each has its own variables."""

_CERTAIN = 1_000
"""A depth at which libyaml's recursion is certainly harmless."""
_BEFORE_TEXT = re.compile(r"^[ \t\-?:]*", re.MULTILINE)


def is_too_deep(text: str, loader: type) -> bool:
    """Whether a text nests deeper than ``MOST_DEPTH``, without composing it.

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
            if depth > MOST_DEPTH:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False
