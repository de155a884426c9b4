"""A script's run as a person sees it: what its ranks print, as they print it, and at its end what they have written."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allranks.cli.attempt_words import retrying_words
from allranks.cli.line_writer import LineWriter
from allranks.cli.live import perform_shown
from allranks.cli.log_choice import LogChoice
from allranks.cli.log_stream import LogStream
from allranks.cli.shown_run import RunDisplay, ShownRun
from allranks.cli.text import aligned_rows
from allranks.local.cache import new_files, resume_rows
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, RunsHome, StepFolder
from allranks.local.node_folders import KEPT_FOLDERS
from allranks.local.plan import PlannedStep, RunPlan
from allranks.local.result import RETRYING, SUCCEEDED, RunResult, StepResult
from allranks.performing import PreparedRun
from allranks.wording import duration_words, with_count

_SHOWN_FILES = 8


def perform_script(prepared: PreparedRun, home: RunsHome, display: RunDisplay, *, as_json: bool = False) -> RunResult:
    """Run a script to its end; unless ``as_json``, what it prints is printed. Raises as ``perform_shown``."""
    logs = LogChoice(others=True) if display.logs is None else display.logs
    observer = _ScriptObserver(logs, retries=prepared.request.retries)
    return perform_shown(prepared, home, as_json=as_json, display=replace(display, observer=observer))


def written_files(result: RunResult) -> dict[str, dict[str, Any]]:
    """By node what a script has written beside itself, as on Azure ML in its working folder: the folder, and files."""
    found = {}
    for step in result.steps.values():
        folder = StepFolder(step.folder)
        for node in range(step.nodes):
            new = new_files(folder.work(node), folder.snapshot)
            files = sorted(name for name in new if (folder.work(node) / name).is_file())
            if files:
                found[str(node)] = {"folder": str(folder.work(node)), "files": files}
    return found


class _ScriptObserver(ShownRun):
    """Prints what the ranks of the one step print, line by line, each with its rank where there are several."""

    def __init__(self, logs: LogChoice, retries: int | None) -> None:
        self._retries = retries
        self._writer = LineWriter(sys.stdout)
        self._logs = LogStream(logs, self._print, is_ready=lambda: self._writer.is_ready, styled=sys.stdout.isatty())
        self._step: PlannedStep | None = None

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """Name the run, and on how many ranks it is."""
        (step,) = plan.steps.values()
        self._step = step
        where = f"{with_count(step.ranks, 'rank')}, {with_count(step.nodes, 'node')} x {step.processes}"
        print(f"run {run.id} on {where}, in {run.path}", flush=True)

    def tick(self, steps: Mapping[str, StepExecution]) -> None:  # noqa: ARG002 the logs tell themselves
        """Print what is new."""
        self._logs.look()

    def changed(self, step: StepResult) -> None:
        """Print what is left of an attempt that has ended, and that there is another."""
        self._logs.changed(step)
        self._writer.flush()
        if step.status == RETRYING:
            print(retrying_words(step, self._retries), flush=True)

    def close(self) -> None:
        """Print what is left."""
        self._logs.close()
        self._writer.flush()

    def ended(self, result: RunResult) -> None:
        """Print how it ended."""
        _print_end(result)

    def _print(self, _step: str, rank: int, lines: list[str]) -> None:
        mark = f"[rank {rank}] " if self._step is not None and self._step.ranks > 1 else ""
        self._writer.write("".join(f"{mark}{line}\n" for line in lines))


def _print_end(result: RunResult) -> None:
    """The end of a run for people: how it ended, what it has written and where, and what can be asked next."""
    (step,) = result.steps.values()
    if result.explanation:
        print(result.explanation, file=sys.stderr)
    print(f"{result.status} in {duration_words(result.seconds)}")
    lines = []
    for node, written in written_files(result).items():
        where = f"written on node {node}" if step.nodes > 1 else "written"
        lines.append((where, f"{written['folder']}: {_listed(written['files'])}"))
    lines.append(("logs", str(step.folder / "user_logs")))
    lines.append(("page of the run", str(result.run_dir / "report.html")))
    if result.status != SUCCEEDED:
        lines += resume_rows(RunFolder(result.run_dir))
    print(aligned_rows(lines, keep_whole=True))


def _listed(files: list[str]) -> str:
    """The files, those of a folder as one."""
    tops = Counter(name.partition("/")[0] + "/" if "/" in name else name for name in files)
    shown = [f"{top} ({with_count(count, 'file')})" if top.endswith("/") else top for top, count in tops.items()]
    shown.sort(key=lambda one: not one.startswith(tuple(f"{kept}/" for kept in KEPT_FOLDERS)))
    rest = f" and {len(shown) - _SHOWN_FILES} more" if len(shown) > _SHOWN_FILES else ""
    return ", ".join(shown[:_SHOWN_FILES]) + rest
