"""Which runs a list shows, in which order and on which page: the same in the terminal and in the browser."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Collection
from dataclasses import dataclass

from allranks.cli.run_rows import RunRow, run_row
from allranks.cli.run_state import read_run_state
from allranks.cli.text import name_suggestion
from allranks.errors import UsageError
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.logged import FollowedFiles
from allranks.local.result import CANCELLED, FAILED, RUNNING, SUCCEEDED

STARTED, DURATION = "started", "duration"
SORT_KEYS = (STARTED, DURATION)
"""What runs are sorted by besides their metrics."""
STATUSES = (RUNNING, SUCCEEDED, FAILED, CANCELLED, "unknown")
"""Of runs; ``unknown`` is one whose run.json cannot be read."""

_SHOWN = 20  # in the terminal
_MOST_NAMED = 10  # metrics, in a message


@dataclass(frozen=True, slots=True)
class ListChoice:
    """What of all runs is listed.

    Attributes:
        search: words that each have to stand in a run's id, name, target, given inputs or metrics' names.
        statuses: empty for all.
        sort: ``started``, ``duration`` or a metric; the newest, longest or highest first.
        reverse: the other way round.
        limit: how many a page has; 0 for all.
    """

    search: str = ""
    statuses: tuple[str, ...] = ()
    sort: str = STARTED
    reverse: bool = False
    page: int = 1
    limit: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; raises UsageError."""
        for status in self.statuses:
            if status not in STATUSES:
                message = f"no run has the status {status!r}{name_suggestion(status, STATUSES)}."
                raise UsageError(message, f"There are {', '.join(STATUSES)}; several stand with commas between them.")
        if self.limit < 0:
            raise UsageError(f"the limit {self.limit} is below 0.", "A page has 1 run or more; 0 shows all.")
        if self.page < 1:
            raise UsageError(f"there is no page {self.page}.", "The first page is 1.")

    @property
    def metric(self) -> str:
        """The metric that is sorted by, or nothing."""
        return "" if self.sort in SORT_KEYS else self.sort

    def fits(self, status: str, words: str) -> bool:
        """Whether something of this status, with these case folded words, is listed."""
        return (not self.statuses or status in self.statuses) and all(
            word in words for word in self.search.casefold().split()
        )


@dataclass(frozen=True, slots=True)
class ListedRuns:
    """The runs on one page.

    Attributes:
        first: the number of the first of them among those that fit, from 1.
        total: how many fit.
        pages: at least 1.
    """

    folders: tuple[RunFolder, ...]
    first: int
    total: int
    pages: int


class RunIndex:
    """The rows of all runs; one that has ended is read again when its run.json is another.

    Who looks again and again gives ``followed``, where what running steps have logged is kept.
    """

    def __init__(self, home: RunsHome, followed: FollowedFiles | None = None) -> None:
        self.home = home
        self._followed = followed
        self._kept: dict[str, tuple[tuple[int, ...], RunRow]] = {}

    def row(self, folder: RunFolder) -> RunRow:
        """The row of a run as it is now."""
        stamp: tuple[int, ...] = ()
        try:
            about = os.stat(folder.state)  # noqa: PTH116 one for each run at each look
            stamp = (about.st_ino, about.st_size, about.st_mtime_ns)
        except OSError:
            pass  # removed meanwhile
        kept = self._kept.get(folder.id)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        row = run_row(read_run_state(folder, self._followed))
        if row.status != RUNNING and stamp:
            self._kept[folder.id] = stamp, row
        return row

    def metrics(self) -> list[str]:
        """The names of all metrics, each once."""
        return sorted({name for folder in self.home.all_runs() for _, name, _ in self.row(folder).metrics})

    def choose(self, choice: ListChoice) -> ListedRuns:
        """The runs of a page; raises UsageError for a page after the last, and for a metric that no run has.

        Without a search, a status or another order none is read: their ids begin with the time.
        """
        folders = self.home.all_runs()
        if choice.search or choice.statuses or choice.sort != STARTED:
            rows = {one: self.row(one) for one in folders}
            if choice.metric:
                _refuse_unknown(choice.metric, rows.values())
            folders = [one for one, row in rows.items() if choice.fits(row.status, row.words)]
        if choice.sort == STARTED:
            folders = folders if choice.reverse else folders[::-1]
        else:
            values = {one: _value(rows[one], choice) for one in reversed(folders)}
            sign = 1 if choice.reverse else -1  # those without a value come last, either way
            folders = sorted(values, key=lambda one: (values[one] is None, sign * (values[one] or 0.0)))
        limit = choice.limit or max(1, len(folders))
        pages = max(1, math.ceil(len(folders) / limit))
        if choice.page > pages:
            raise UsageError(f"there is no page {choice.page}: {len(folders)} runs fit, {limit} are on a page.")
        start = (choice.page - 1) * limit
        return ListedRuns(tuple(folders[start : start + limit]), start + 1, len(folders), pages)


def _refuse_unknown(metric: str, rows: Collection[RunRow]) -> None:
    """Refuse a metric that no run has; raises UsageError."""
    if any(row.find_metric(metric) for row in rows):
        return
    names = sorted({name for row in rows for _, name, _ in row.metrics})
    known = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    message = f"runs are not sorted by {metric!r}{name_suggestion(metric, [*SORT_KEYS, *names])}."
    raise UsageError(message, f"There are {STARTED}, {DURATION}, and what runs have logged: {known or 'nothing'}.")


def _value(row: RunRow, choice: ListChoice) -> float | None:
    """What a run is sorted by; of a metric in several steps the highest, or the lowest where that comes first."""
    if choice.sort == DURATION:
        return row.seconds
    values = [value for _, _, value in row.find_metric(choice.sort) if not math.isnan(value)]
    return (min if choice.reverse else max)(values, default=None)


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what of the runs is listed."""
    limit = f"so many of them; 0 for all (default: {_SHOWN}, with --json all)"
    parser.add_argument("--limit", metavar="N", type=int, help=limit)
    parser.add_argument("--page", metavar="N", type=int, default=1, help="those that come after: 2 has the next N")
    statuses = f"those of a status: {', '.join(STATUSES)}; several with commas"
    parser.add_argument("--status", metavar="STATUS,…", default="", help=statuses)
    search = "those with these words in their id, name, target, given inputs or metrics' names"
    parser.add_argument("--search", metavar="TEXT", default="", help=search)
    order = "the newest, the longest, or those with the highest METRIC (or STEP.METRIC) first (default: started)"
    parser.add_argument("--sort", metavar="started|duration|METRIC", default=STARTED, help=order)
    parser.add_argument("--reverse", action="store_true", help="the oldest, shortest or lowest first")


def list_choice(args: argparse.Namespace) -> ListChoice:
    """What was asked for; ``allranks runs`` alone declares none of it, and lists the newest."""
    if "limit" not in args:
        return ListChoice(limit=0 if args.json else _SHOWN)
    limit = args.limit if args.limit is not None else 0 if args.json else _SHOWN
    return ListChoice(args.search, split_statuses(args.status), args.sort, args.reverse, args.page, limit)


def split_statuses(text: str) -> tuple[str, ...]:
    """The statuses of a list with commas."""
    return tuple(filter(None, (status.strip() for status in text.split(","))))
