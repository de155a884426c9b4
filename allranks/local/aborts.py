"""Ranks that were killed while Python ended, after all of their own work: they are named, and a few are taken again.

A thread of gloo that lets go of a tensor waits for Python's lock. If the script ends before it gets it, Python (before
3.14) ends the thread, in the middle of C++ that does not allow it, and the process dies of SIGABRT with one line. That
is rare and needs a busy machine; it happens under torchrun and without any launcher too, and no variable prevents it.
It is not a success either: nothing proves that the script had finished. So the attempt is repeated, never accepted.
"""

from __future__ import annotations

import re
import signal

from allranks.local.gang import RankExit, RankGang
from allranks.local.result import last_lines

_LAST_WORDS = "terminate called without an active exception"
ABORT_REPEATS = 2
"""So many attempts of a step are repeated for this, beside those of `--retries`."""

_CODES = (-signal.SIGABRT, 128 + signal.SIGABRT)
# What others say about it: the shell around the script, or torchrun's own log.
_AFTER = re.compile(r"(\S*sh: )?((line )?\d+: +)?(\d+ )?Aborted\b|[WEI]\d{4} \d\d:\d\d:\d\d")


def was_aborted_at_exit(first: RankExit | None, gang: RankGang) -> bool:
    """Whether the rank that failed first was killed so, and no other rank of the gang failed in a way of its own.

    One that aborts in the middle of its work takes the others' connections with it.
    """
    if first is None or first.code not in _CODES:
        return False
    own = {0, -signal.SIGKILL, *_CODES}  # SIGKILL is how the engine ends the others
    if first.command in gang.commands and any(other.code not in own for other in gang.exits):
        return False
    lines = [line.strip() for line in last_lines(first.command.log, 200)]
    if _LAST_WORDS not in lines:
        return False
    after = lines[len(lines) - lines[::-1].index(_LAST_WORDS) :]
    return not after or _AFTER.match(after[0]) is not None
