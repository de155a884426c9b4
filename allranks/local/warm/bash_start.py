"""What bash does to start the only program of its command, for who starts it without bash."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_OF_BASH = frozenset(
    [
        *("SHELLOPTS", "POSIXLY_CORRECT", "IFS", "OPTIND", "OPTERR", "PS4", "HISTCMD", "COMP_WORDBREAKS", "LINENO"),
        *("PPID", "RANDOM", "SRANDOM", "EPOCHSECONDS", "EPOCHREALTIME"),
    ]
)
"""With those that begin with BASH, variables that bash sets itself, or by which it does more than start a program."""


def is_plain_bash(environ: Mapping[str, str]) -> bool:
    """Whether bash with these variables does no more than that."""
    return not any(name in _OF_BASH or name.startswith("BASH") for name in environ)


def find_program(name: str, environ: Mapping[str, str]) -> Path | None:
    """The program that bash finds on PATH."""
    for folder in environ.get("PATH", "").split(os.pathsep):
        path = Path(folder) / name
        if folder.startswith("/") and path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def shell_variables(environ: Mapping[str, str], program: str) -> dict[str, str]:
    """The variables with which bash starts its only command, a program."""
    level = environ.get("SHLVL", "")
    found = {**environ, "SHLVL": level if level.isdigit() else "0", "_": program}
    if "OLDPWD" in found and not Path(found["OLDPWD"]).is_dir():
        del found["OLDPWD"]
    for prompt in ("PS1", "PS2"):  # which a virtual environment exports, and bash takes away where nobody types
        found.pop(prompt, None)
    return found
