"""Whether the scripts that a command starts are in its snapshot: Azure ML finds out when the machines are paid for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from allranks.errors import Problem
from allranks.spec.expressions import replace_references
from allranks.spec.model import Component
from allranks.spec.suggest import nearest_hint

_STARTERS = frozenset(
    {"python", "python3", "bash", "sh", "torchrun", "deepspeed", "horovodrun", "mpirun", "accelerate"}
)
# After these the working folder is another one, or has files that were not in the snapshot.
_CHANGES = frozenset({"cd", "pushd", "git", "curl", "wget", "cp", "mv", "ln", "unzip", "tar", "az", "azcopy"})
_SCRIPTS = (".py", ".sh")


def check_script(component: Component) -> Iterator[Problem]:
    """Warn of scripts that the command starts and that are neither in the code folder nor among the includes."""
    code = component.code
    if code is None or not code.exists():
        return
    for script in _started(component.command):
        if not _is_there(code, component.includes, script):
            names = [path.name for path in code.iterdir() if path.suffix in _SCRIPTS] if code.is_dir() else [code.name]
            message = f"starts '{script}', which is neither in '{code}' nor among the additional_includes."
            yield component.source.problem("command", message, nearest_hint(script, names), "warning")


def _started(command: str) -> Iterator[str]:
    """Yield the relative path of the script in each simple command that starts one, as far as that can be told."""
    text = replace_references(command, lambda _: "_").replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # quotes that are not closed
        return
    start: str | None = None
    begins = True
    for word in words:
        if set(word) <= set("();<>|&"):
            begins, start = True, None
        elif begins and "=" in word:  # a variable of the command that follows
            continue
        elif begins:
            if word in _CHANGES:
                return
            begins, start = False, word if word in _STARTERS else None
        elif start and word == "-c":
            start = None
        elif start and word.endswith(_SCRIPTS):
            start = None
            if not word.startswith(("-", "/", "~")) and not set(word) & set("$*?{"):
                yield word


def _is_there(code: Path, includes: tuple[Path, ...], script: str) -> bool:
    first, *rest = PurePosixPath(os.path.normpath(script)).parts
    if first == "..":  # what lies above the snapshot is not known
        return True
    landed = [*(code.iterdir() if code.is_dir() else [code]), *(include.resolve() for include in includes)]
    return any(one.name == first and one.joinpath(*rest).exists() for one in landed)
