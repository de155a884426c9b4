"""``allranks runs compare``: two or more runs beside each other, in the terminal, as JSON or as a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.cli import text
from allranks.cli.run_state import read_run_state
from allranks.errors import UsageError
from allranks.files import write_text
from allranks.local.folders import RunsHome
from allranks.local.page.compare import compare_runs, comparison_page
from allranks.local.page.document import run_document
from allranks.local.resources.words import resource_row_words
from allranks.wording import compared_words, duration_words, run_seconds

_LONGEST = 60  # characters of a value; --json has all


def print_comparison(args: argparse.Namespace, home: RunsHome) -> int:
    """Print what differs between the runs that are named, and their metrics; the first is what others are held to.

    Raises:
        UsageError: fewer than two runs, or one of them twice.
        UnknownNameError: one is no run.
    """
    runs = [home.find(name) for name in args.runs]
    if len({run.id for run in runs}) < len(runs):
        raise UsageError(f"a run is named twice: {', '.join(run.id for run in runs)}.", "Name each once.")
    if len(runs) < 2:
        raise UsageError("one run cannot be compared.", "Name two or more; `allranks runs list` shows them.")
    compared = compare_runs(runs, [run_document(run, read_run_state(run)) for run in runs])
    if args.page:
        write_text(Path(args.page), comparison_page(compared))
    if args.json:
        text.print_output(compared)
        return 0
    print("\n".join(comparison_lines(compared)))
    if args.page:
        print(f"page      {Path(args.page).absolute()}")
    return 0


def comparison_lines(compared: Mapping[str, Any]) -> Iterator[str]:
    """What ``compare_runs`` has found, line by line for people."""
    runs = compared["runs"]
    names = [run["run_id"] for run in runs]
    took = [run_seconds(run) for run in runs]
    about: list[list[str]] = [
        [run["run_id"], run["status"], duration_words(seconds), str(run["target"] or "")]
        for run, seconds in zip(runs, took, strict=True)
    ]
    yield text.aligned_rows(about, indent="", keep_whole=True)
    for title in ("metrics", "resources", "inputs", "data", "environment"):
        rows = list(map(resource_row_words, compared[title])) if title == "resources" else compared[title]
        same = compared["same"].get(title)
        yield title if same is None else f"{title}: {len(rows)} differ, {same} are the same"
        if rows:
            head = ["", *names]
            cells = [[f"{row['step']}.{row['name']}", *map(_shown, row["values"])] for row in rows]
            yield text.aligned_rows([head, *cells], keep_whole=True)
    yield from _code_lines(compared["code"])


def _code_lines(code: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "code" if code else "code: the same"
    for one in code:
        for file in one["files"]:
            signs = [line[0] for line in file["lines"] if line[:1] in ("+", "-")]
            count = f", +{signs.count('+')} -{signs.count('-')} lines" if signs else ""
            yield f"  {one['step']}: {file['path']} {file['change']} in {one['run_id']}{count}"


def _shown(value: Any) -> str:
    shown = compared_words(value)
    if isinstance(value, Mapping):
        return shown
    shown = text.one_line(shown)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
