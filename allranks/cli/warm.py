"""``allranks warm``: keep processes that have imported frameworks, from which the next runs fork their ranks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from allranks.cli import text
from allranks.cli.kept_engine import ENGINE_IMPORTS
from allranks.errors import UsageError
from allranks.local.warm.starting import keeper_state, start_keeper
from allranks.wording import duration_words, with_count

HELP = "let the ranks of your next runs start from a process that has imported torch already"

_MOST_MINUTES = 7 * 24 * 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--show", action="store_true", help="say what is kept, and start nothing")
    doing.add_argument("--stop", action="store_true", help="end it, and the ranks that were forked from it")
    idle = "how long it waits for the next run before it ends by itself (default: 30)"
    parser.add_argument("--idle", metavar="MINUTES", type=float, default=30.0, help=idle)
    memory = "of all processes that are kept; those that were not used for longest end first (default: 4)"
    parser.add_argument("--memory", metavar="GB", type=float, default=4.0, help=memory)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Start, show or end it."""
    if not 0 < args.idle <= _MOST_MINUTES:
        raise UsageError(
            f"--idle {args.idle:g} is not between 0 and {_MOST_MINUTES:,} minutes.", "Leave it out for 30."
        )
    if not 0.1 <= args.memory <= 10_000:
        raise UsageError(f"--memory {args.memory:g} is not between 0.1 and 10,000 GB.", "Leave it out for 4.")
    state = keeper_state("stop" if args.stop else "show")
    has_started = state is None and not args.stop and not args.show
    if has_started:
        start_keeper(args.idle * 60, int(args.memory * 10**9))
        state = keeper_state()
    if args.json:
        text.print_output({"running": state is not None and not args.stop, **(state or {})})
    else:
        print(_words(state, has_started=has_started, has_stopped=args.stop))
    return 0


def _words(state: Mapping[str, Any] | None, *, has_started: bool, has_stopped: bool) -> str:
    if state is None:
        return "nothing is kept warm; `allranks warm` starts it"
    if has_stopped:
        return "stopped: ranks start as programs of their own again"
    end = f"it ends {duration_words(state['idle_seconds'])} after the last run, or by `allranks warm --stop`"
    if has_started:
        return f"started: the first run of a script imports as ever, the next ones fork their ranks; {end}"
    rows = [
        (
            ", ".join("allranks run" if name == ENGINE_IMPORTS else name for name in one["modules"]),
            f"OMP_NUM_THREADS={one['threads']}" if one["threads"] else "",
            f"{one['bytes'] / 1e6:.0f} MB",
            "ready" if one["ready"] else "importing",
            one["interpreter"],
        )
        for one in state["templates"]
    ]
    forked = f"{with_count(state['engines'], 'run')} and {with_count(state['forked'], 'rank')} forked so far"
    lines = [f"process {state['pid']}: {forked}; {end}"]
    lines += [text.aligned_rows(rows)] if rows else []
    lines += [f"the last one that asked and was not forked: {state['refusal']}"] if state["refusal"] else []
    return "\n".join([*lines, *(f"not kept: {reason}" for reason in state["failed"])])
