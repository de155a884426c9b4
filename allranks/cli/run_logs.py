"""``allranks runs logs``: the log of a step, of every rank or of one, at once or as it grows."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from allranks.cli import text
from allranks.cli.run_state import FINISHED_STATUSES, logs_by_rank, read_run_state, step_with_logs, steps_and_trials
from allranks.errors import UnknownNameError, UsageError
from allranks.local.folders import RunFolder, RunsHome, StepFolder
from allranks.local.result import RUNNING
from allranks.local.traces import LogTraces
from allranks.log_text import clean_text
from allranks.redaction import redact
from allranks.wording import with_count

_POLL_SECONDS = 0.2
"""Between two looks at a log that is followed."""
_FEW_LOGS = 8
"""So many can be looked through for the rank that failed."""


def print_logs(args: argparse.Namespace, home: RunsHome) -> int:
    """Print the logs of a step, every rank's lines marked with its number when there are several."""
    folder = home.find(args.run)
    steps = steps_and_trials(folder)
    if args.step is None:
        return _list_logs(args, home, folder, steps)
    if args.step not in steps:
        close = text.name_suggestion(args.step, steps)
        raise UnknownNameError(f"run {folder.id} has no step {args.step!r}{close}.", f"Its steps: {', '.join(steps)}.")
    step = step_with_logs(home, folder, args.step, steps[args.step])
    if args.json:
        if args.follow:
            raise UsageError("--follow goes on printing and --json prints one document.", "Leave one of them out.")
        found = {str(rank): str(path) for rank, path in _chosen(step, args.rank).items()}
        text.print_output({"run_id": folder.id, "step": args.step, "logs": found})
        return 0

    def is_complete() -> bool:
        if not args.follow or read_run_state(folder)["status"] != RUNNING:
            return True
        return steps_and_trials(folder)[args.step]["status"] in FINISHED_STATUSES

    styled = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    traces = LogTraces(step.logs)
    chosen = partial(_chosen, step, args.rank, wait=args.follow)
    is_silent = True
    for line in _growing_lines(chosen, is_complete, traces, styled=styled):
        print(line, flush=args.follow)
        is_silent = False
    if is_silent:
        text.print_note(_empty_logs(chosen()))
    if args.rank is None and (note := _failed_rank(folder, args.step, len(chosen()))):
        text.print_note(note)
    return 0


def _failed_rank(folder: RunFolder, step: str, count: int) -> str:
    """Whose log to read, where those of many ranks were printed; empty if no rank has failed, or if it is seen."""
    failure = steps_and_trials(folder)[step].get("failure") or {}
    if failure.get("rank") is None or count <= _FEW_LOGS:
        return ""
    return f"{failure['message']}; its log alone: allranks runs logs {folder.id} {step} --rank {failure['rank']}"


def _empty_logs(logs: Mapping[int, Path]) -> str:
    """``nothing was printed: the log of rank 1 is empty (…/std_log_process_1.txt)``."""
    if len(logs) == 1:
        return "".join(f"nothing was printed: the log of rank {rank} is empty ({path})" for rank, path in logs.items())
    return "nothing was printed: " + ("the logs of all ranks are empty" if logs else "the step has no log")


def _list_logs(args: argparse.Namespace, home: RunsHome, folder: RunFolder, steps: Mapping[str, Any]) -> int:
    """Print which steps have how many logs, and where."""
    if args.follow or args.rank is not None:
        raise UsageError("--follow and --rank are about one step.", f"Its steps: {', '.join(steps)}.")
    found = {name: logs_by_rank(step_with_logs(home, folder, name, step)) for name, step in steps.items()}
    if args.json:
        paths = {name: {str(rank): str(path) for rank, path in ranks.items()} for name, ranks in found.items()}
        text.print_output({"run_id": folder.id, "steps": paths})
        return 0
    places = {name: str(next(iter(ranks.values())).parent) if ranks else "" for name, ranks in found.items()}
    numbers = {name: with_count(len(ranks), "log") if ranks else "no logs" for name, ranks in found.items()}
    cells = [(name, steps[name]["status"], numbers[name], places[name]) for name in found]
    print(f"{text.aligned_rows(cells, keep_whole=True)}\none step's log: allranks runs logs {folder.id} STEP")
    return 0


def _growing_lines(
    files: Callable[[], Mapping[int, Path]], is_complete: Callable[[], bool], traces: LogTraces, *, styled: bool
) -> Iterator[str]:
    """The lines of growing log files, as ``run --logs`` has them, until ``is_complete`` says that nothing will follow.

    The files are asked for again on every look, since a rank's log appears when the rank starts.
    """
    read: dict[int, int] = {}
    while True:
        last = is_complete()  # asked before reading: what was written until then is still read below
        found = files()
        for rank, path in found.items():
            start = read.get(rank, 0)
            start = start if start <= path.stat().st_size else 0  # a new attempt starts its log anew
            new = _read_from(path, start)
            whole = new if last else new[: new.rfind(b"\n") + 1]
            read[rank] = start + len(whole)
            mark = f"[rank {rank}] " if len(found) > 1 else ""
            shown = redact(clean_text(whole.decode(errors="replace"), styled=styled))
            if whole:
                yield from (mark + line for line in traces.point(shown).removesuffix("\n").split("\n"))
        if last:
            return
        time.sleep(_POLL_SECONDS)


def _chosen(step: StepFolder, rank: int | None, *, wait: bool = False) -> dict[int, Path]:
    """The logs of all ranks, or of one; a step without a distribution has only rank 0."""
    found = logs_by_rank(step)
    if not found and not wait:
        raise UnknownNameError(f"there is no log in {step.logs}: the step has not started.", "--follow waits for it.")
    if rank is None:
        return found
    if rank not in found and not wait:
        raise UnknownNameError(f"the step has no rank {rank}.", f"Its ranks: {', '.join(map(str, found))}.")
    return {rank: found[rank]} if rank in found else {}


def _read_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()
