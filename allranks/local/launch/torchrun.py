"""Per-node launch: torchrun in the command starts the ranks, so the engine sees only how torchrun ended.

Its report, at the end of the log that its ranks share, names the rank that failed first (`torch.distributed.elastic`,
``ChildFailedError``). Every node has a report of its own, and on the others the ranks fail because of the first one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from allranks.local.gang import RankExit
from allranks.local.metrics_file import read_end

_REPORT_BYTES = 16384

_CAUSE = re.compile(
    r"^Root Cause \(first observed failure\):\n"
    r"(?:.*\n)*?  time +: (?P<time>\S+)\n"
    r"(?:.*\n)*?  rank +: (?P<rank>\d+) .*\n"
    r"(?:.*\n)*?  exitcode +: (?P<code>-?\d+) ",
    re.MULTILINE,
)


_OF_TORCHRUN = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ torch/distributed/")
_REPORT_START = re.compile(r'  File "\S*torchrun", line ')


def words_of_ranks(lines: Sequence[str], count: int) -> tuple[str, ...]:
    """The last of these lines of a log, without what torchrun itself says there.

    Its report, with which the log of a failed one ends, says who failed and not why.
    """
    starts = [number for number, line in enumerate(lines) if _REPORT_START.match(line)]
    if not starts:
        return tuple(lines[-count:])
    own = (line for line in lines[: starts[-1] - 1] if not _OF_TORCHRUN.match(line))
    before = [line for line, _ in groupby(own)]  # each start of the ranks may have ended alike
    return tuple((before or lines)[-count:])


def reported_exit(exits: Sequence[RankExit]) -> RankExit | None:
    """How the rank that failed first ended, as those of the exits that are torchruns tell; None if none of them tells.

    Of the processes that started ranks the one that failed first comes before the others.
    """
    found = []
    for exit_ in exits:
        cause = _CAUSE.search(read_end(exit_.command.log, _REPORT_BYTES).decode(errors="replace"))
        if cause is not None:
            command = replace(exit_.command, rank=int(cause["rank"]))
            found.append((cause["time"], RankExit(command, int(cause["code"]), exit_.when)))
    # The times have seconds; among equal ones the torchrun that ended first comes first.
    return min(found, key=lambda one: one[0])[1] if found else None
