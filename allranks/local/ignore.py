"""Ignore files (``.amlignore``, else ``.gitignore``) with the meaning that the Azure ML SDK gives to them.

That meaning is git's, with two differences: a folder that was left out does not stop a later ``!pattern`` from bringing
a file inside it back, and spaces at the end of a line never count. tests/local holds these rules against the SDK's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from allranks.errors import UsageError
from allranks.local.folders import DEFAULT_HOME, RUNS_MARK

IGNORE_FILES = (".amlignore", ".gitignore")
"""The ignore files, the first that exists counts."""

_ALWAYS = "__pycache__"
# A part of one path element: an escaped character, a wildcard, a [set], or a plain character. The possessive ?+ and *+
# keep "[]" and "[!]", which close nothing, from being read as empty sets.
_PART = re.compile(r"\\(?P<escaped>.)|(?P<wild>[*?])|\[(?P<negated>!?+)(?P<set>\]?+[^\]]*+)\]|(?P<plain>.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of an ignore file: what it matches is left out, or brought back when the line began with ``!``."""

    leaves_out: bool
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class IgnoreFile:
    """The rules of one folder; patterns are matched against paths relative to ``base``."""

    base: str
    rules: tuple[_Rule, ...]

    def excludes(self, path: str) -> bool:
        """Whether the last rule that matches ``path`` (absolute) leaves it out."""
        return self.excludes_relative(os.path.relpath(path, self.base))

    def excludes_relative(self, path: str) -> bool:
        """Like ``excludes`` for a path that is relative to the base already, with forward slashes."""
        excluded = False
        for rule in self.rules:
            if rule.leaves_out != excluded and rule.regex.match(path):
                excluded = rule.leaves_out
        return excluded

    def rebased(self, base: str) -> IgnoreFile:
        """The same rules, seen from another folder."""
        return IgnoreFile(base, self.rules)


def read_ignore_file(folder: str) -> IgnoreFile:
    """The rules that hold in ``folder``: those of its own ignore file, if it has one, and ``__pycache__``."""
    for name in IGNORE_FILES:
        path = f"{folder}/{name}"
        if os.path.exists(path):  # noqa: PTH110 - asked for every folder of a snapshot, and os.path is three times faster
            return IgnoreFile(folder, rules_of_file(path))
    return IgnoreFile(folder, rules_of(()))


def rules_of_file(path: str) -> tuple[_Rule, ...]:
    """The rules of one ignore file, ``__pycache__`` added; raises UsageError for a line that is no pattern."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return rules_of(tuple(file))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: byte {error.start} is {error.reason}.") from None
    except ValueError as error:
        raise UsageError(
            f"{path}: {error}.", "A backslash needs a character after it, and [a-z] an ascending range."
        ) from None


@lru_cache(maxsize=256)
def rules_of(lines: tuple[str, ...]) -> tuple[_Rule, ...]:
    """The rules of these lines, ``__pycache__`` added; raises ValueError for a line that is no pattern."""
    return tuple(rule for line in (*lines, _ALWAYS) if (rule := _rule(line.strip())) is not None)


def _rule(line: str) -> _Rule | None:
    if not line or line == "/" or line.startswith("#"):
        return None
    leaves_out = not line.startswith("!")
    try:
        return _Rule(leaves_out, re.compile(_regex(line if leaves_out else line[1:])))
    except (ValueError, re.error) as error:
        raise ValueError(f"{line!r} is not a valid pattern ({error})") from error


def _regex(pattern: str) -> str:
    """The regular expression that matches a whole relative path when the pattern does."""
    elements = _collapsed(pattern.split("/"))
    if elements == ["**", ""]:
        return "^.+/.*$"  # everything but the files at the root
    if not elements[0]:
        del elements[0]  # a leading slash: only from the root
    elif elements[0] != "**" and elements[1:] in ([], [""]):
        elements.insert(0, "**")  # a lone name counts at any depth
    if not elements:
        raise ValueError("it is empty")
    if not elements[-1] and len(elements) > 1:
        elements[-1] = "**"  # a trailing slash: what lies inside
    return "^" + "".join(_element_regexes(elements)) + "$"


def _collapsed(elements: list[str]) -> list[str]:
    """Without repeated ``**`` elements."""
    return [e for i, e in enumerate(elements) if not (e == "**" and i and elements[i - 1] == "**")]


def _element_regexes(elements: list[str]) -> Iterable[str]:
    last = len(elements) - 1
    slash = ""  # what separates the next element from the one before
    for index, element in enumerate(elements):
        if element == "**":
            if index == 0:
                yield ".+" if last == 0 else "(?:.+/)?"
            else:
                yield "/.*" if index == last else "(?:/.+)?"
                slash = "/"
            continue
        yield slash + ("[^/]+" if element == "*" else _glob_regex(element))
        if index == last:
            yield "(?:/.*)?"  # a folder's name takes all that is inside
        slash = "/"


def _glob_regex(element: str) -> str:
    """The regular expression of one path element with ``*``, ``?``, ``[set]`` and backslashes."""
    return "".join(map(_part_regex, _PART.finditer(element)))


def _part_regex(part: re.Match[str]) -> str:
    if part["wild"]:
        return "[^/]*" if part["wild"] == "*" else "[^/]"
    if part["set"] is not None:
        body = part["set"].replace("\\", "\\\\")
        if part["negated"]:
            return f"[^{body}]"
        return f"[\\{body}]" if body.startswith("^") else f"[{body}]"
    if part["plain"] == "\\":
        raise ValueError("nothing follows the backslash")
    return re.escape(part["escaped"] or part["plain"])


def is_left_out(path: str | os.PathLike[str]) -> bool:
    """Whether no snapshot takes a folder along: one that holds runs, or a virtual environment, which a copy breaks."""
    return is_runs_folder(path) or os.path.exists(os.path.join(path, "pyvenv.cfg"))  # noqa: PTH110, PTH118 as above


def is_runs_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds runs, under the usual name or another one: then it is no part of anybody's code."""
    if os.path.basename(path) == DEFAULT_HOME:  # noqa: PTH119 - asked for every folder of a snapshot, where Path is slow
        return True
    try:
        return b"Runs of allranks" in Path(path, RUNS_MARK).read_bytes()
    except OSError:
        return False
