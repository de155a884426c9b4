"""How a small program of ours becomes the one that it stands in front of: that finds what it would have found."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores, and what it starts would


def first_variables() -> dict[str, str]:
    """Those that this process was started with: Python itself sets one where the language is C."""
    texts = map(os.fsdecode, Path("/proc/self/environ").read_bytes().split(b"\0"))
    return {name: value for name, is_pair, value in (text.partition("=") for text in texts) if is_pair}


def become(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Be this program from now on; its first word is a path."""
    for number in _BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.execve(command[0], list(command), dict(environ))  # noqa: S606 what was to be started
