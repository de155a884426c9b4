"""What ranks print, shown while they run: read from their logs, so that a slow reader holds up nobody but itself."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from allranks.cli.log_choice import LogChoice
from allranks.cli.log_lines import LogLines
from allranks.local.folders import StepFolder
from allranks.local.result import RETRYING, RUNNING, StepResult
from allranks.local.traces import LogTraces

_AT_ONCE = 2**16  # bytes of one log that are read at a time
_SHARE = 0.1  # seconds of each look that are spent: the engine's own loop looks four times a second

ShownLines = Callable[[str, int, list[str]], None]
"""Takes a step, a rank and whole lines of its log, secrets blotted out."""


def rank_logs(logs: Path) -> dict[int, Path]:
    """The logs in a folder by rank; that of a step without a distribution is rank 0's."""
    ranks = {int(path.stem.rpartition("_")[2]): path for path in logs.glob("std_log_process_*.txt")}
    only = logs / "std_log.txt"
    return dict(sorted({**({0: only} if only.is_file() else {}), **ranks}.items()))


class _FollowedLog:
    """One log that grows; it is kept open, for that of a failed attempt is moved away."""

    def __init__(self, step: str, rank: int, path: Path, *, styled: bool) -> None:
        self.step, self.rank, self.path = step, rank, path
        self._file: BinaryIO = path.open("rb")
        self._lines = LogLines(styled=styled)
        self._traces = LogTraces(path.parent)

    def look(self) -> tuple[list[str], bool]:
        """Further lines, and whether there may be more at once."""
        data, now = self._file.read(_AT_ONCE), time.monotonic()
        return self._pointed(self._lines.feed(data, now) if data else self._lines.late(now)), bool(data)

    def skip(self, most: int) -> tuple[list[str], int]:
        """Pass over what is more than so many bytes before the end, up to a line's: what was left before, how many."""
        here, end = self._file.tell(), os.fstat(self._file.fileno()).st_size
        if end - here <= most:
            return [], 0
        self._file.seek(end - most)
        self._file.readline(_AT_ONCE)
        return self._pointed(self._lines.end()), self._file.tell() - here

    def close(self) -> list[str]:
        """Nothing will follow: what is left of the last line."""
        self._file.close()
        return self._pointed(self._lines.end())

    def _pointed(self, lines: list[str]) -> list[str]:
        return self._traces.point("\n".join(lines)).split("\n") if lines else lines


class LogStream:
    """Follows the logs of running steps and trials, as far as they are wanted.

    Args:
        wanted: whose.
        show: is given the lines, those of one log in their order.
        is_ready: whether lines can be shown now; what cannot be waits in the logs, and costs no memory.
        styled: whether colours are kept.
        most: bytes of one log that may wait; what is older is left out, and a line says so. None leaves out nothing.
    """

    def __init__(
        self,
        wanted: LogChoice,
        show: ShownLines,
        *,
        is_ready: Callable[[], bool] = lambda: True,
        styled: bool = False,
        most: int | None = None,
    ) -> None:
        self._wanted, self._show, self._is_ready = wanted, show, is_ready
        self._styled, self._most = styled, most
        self._running: dict[str, tuple[StepFolder, int]] = {}
        self._followed: dict[tuple[str, int], _FollowedLog] = {}

    def changed(self, step: StepResult) -> None:
        """Follow a step that runs, and show all that is left of one that does not."""
        if not self._wanted or step.sweep is not None:  # the logs of a sweep are those of its trials
            return
        folder = StepFolder(step.folder)
        if step.status == RUNNING:
            self._running[step.name] = (folder, step.nodes * step.processes)
        elif step.name in self._running:
            del self._running[step.name]
            self._find(step.name, folder.attempt_logs(step.attempts) if step.status == RETRYING else folder.logs)
            self._finish(step.name)

    def look(self) -> None:
        """Show what has been printed since the last look, as much as can be shown in a moment."""
        for name, (folder, ranks) in self._running.items():
            if sum(step == name for step, _ in self._followed) < max(1, ranks):
                self._find(name, folder.logs)
        for log in self._followed.values() if self._most is not None else ():
            self._leave_out(log)
        due = time.monotonic() + _SHARE
        waiting = deque(self._followed.items())
        while waiting and time.monotonic() < due and self._is_ready():
            key, log = waiting.popleft()
            if self._pass_on(log):
                waiting.append((key, log))
        self._followed = {**dict(waiting), **self._followed}  # whose turn did not come is the first next time

    def close(self) -> None:
        """Show what is left of all, for a run that has ended in whatever way."""
        for name in list(dict.fromkeys(step for step, _ in self._followed)):
            self._finish(name)

    def _find(self, name: str, logs: Path) -> None:
        for rank, path in rank_logs(logs).items():
            if self._wanted.wants(name, rank) and (name, rank) not in self._followed:
                self._followed[name, rank] = _FollowedLog(name, rank, path, styled=self._styled)

    def _pass_on(self, log: _FollowedLog) -> bool:
        """Whether there may be more of it at once."""
        lines, is_more = log.look()
        if lines:
            self._show(log.step, log.rank, lines)
        return is_more

    def _leave_out(self, log: _FollowedLog) -> None:
        lines, skipped = log.skip(self._most) if self._most is not None else ([], 0)
        if skipped:
            self._show(log.step, log.rank, [*lines, f"({skipped:,} bytes are not shown; all are in {log.path})"])

    def _finish(self, name: str) -> None:
        """All ranks by turns to their ends, then close their logs."""
        logs = list(self._of(name))
        for log in logs:
            self._leave_out(log)
        waiting = logs
        while waiting:
            waiting = [log for log in waiting if self._pass_on(log)]
        for log in logs:
            del self._followed[log.step, log.rank]  # first: where nobody reads any more, showing fails
            if lines := log.close():
                self._show(log.step, log.rank, lines)

    def _of(self, name: str) -> Iterator[_FollowedLog]:
        return (log for (step, _), log in self._followed.items() if step == name)
