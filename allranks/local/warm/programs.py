"""Which Python program a command for bash is, where it is nothing else: then no shell is needed to start it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from allranks.local.overlay import is_script
from allranks.local.warm.bash_start import find_program, is_plain_bash

# What bash takes as it is outside of quotes; a word with anything else is left to bash.
_PLAIN = r"[A-Za-z0-9_@%+:,./=^-]"
_WORD = re.compile(rf"""(?:{_PLAIN}|'[^']*'|"[^"$`\\!]*")+""")
_PIECE = re.compile(r"""'([^']*)'|"([^"]*)"|([^'"]+)""")
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_FLAGS = frozenset(["-u", "-B", "-O", "-OO"])


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A script or module with its arguments, and the interpreter that runs it.

    Attributes:
        interpreter: as bash finds it on PATH; ``sys.executable`` is the same.
        flags: those of the interpreter itself.
        argv: all words, as the process is started.
    """

    interpreter: Path
    flags: tuple[str, ...]
    is_module: bool
    target: str
    arguments: tuple[str, ...]
    argv: tuple[str, ...]


def read_python_program(command: str, environ: Mapping[str, str]) -> PythonProgram | None:
    """The program that bash would start for a command; None where it would do anything else."""
    if not is_plain_bash(environ):
        return None
    words = split_plain_words(command)
    if len(words) < 2 or not _PYTHON.fullmatch(words[0]):
        return None
    count = next((at for at, word in enumerate(words[1:]) if word not in _FLAGS), len(words) - 1)
    flags, rest = words[1 : 1 + count], words[1 + count :]
    is_module = rest[:1] == ["-m"]
    target, *arguments = rest[is_module:] or [""]
    if not target or target.startswith("-"):
        return None
    interpreter = find_program(words[0], environ)
    if interpreter is None or is_script(interpreter):
        return None
    return PythonProgram(interpreter, tuple(flags), is_module, target, tuple(arguments), tuple(words))


def split_plain_words(command: str) -> list[str]:
    """The words of a command in which bash changes nothing but to take off quotes; empty for any other."""
    text, at, words = command.strip(" \t\n"), 0, []
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            return []
        end = match.end()
        if end < len(text) and text[end] not in " \t":
            return []
        words.append("".join(a or b or c for a, b, c in _PIECE.findall(match[0])))
        at = end + len(text[end:]) - len(text[end:].lstrip(" \t"))
    return [] if not words or "=" in words[0] else words
