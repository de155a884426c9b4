"""A script's run as a person sees it: what its ranks print, as they print it, and at its end what they have written."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from allranks.cli.build_phases import build_environments, build_images
from allranks.cli.live import print_notes
from allranks.cli.run_state import logs_by_rank
from allranks.cli.text import aligned_rows, duration_words, with_count
from allranks.local.engine import run_plan
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder, RunsHome, StepFolder
from allranks.local.gang_execution import KEPT_FOLDERS
from allranks.local.options import RunObserver
from allranks.local.plan import RunPlan
from allranks.local.result import RETRYING, RunResult, StepResult
from allranks.local.traces import point_at_sources
from allranks.performing import PreparedRun
from allranks.redaction import redact

_SHOWN_FILES = 8
_TRACE = re.compile(r'^\s*File "')


def perform_script(prepared: PreparedRun, home: RunsHome, *, as_json: bool = False) -> RunResult:
    """Run a script to its end; unless ``as_json``, what it prints is printed. Raises as ``perform_shown``."""
    home.prepare()
    build_environments([one for one in prepared.plan.environments if not one.is_built], target=prepared.request.target)
    build_images(one for one in prepared.plan.images if not one.is_built)
    if as_json:
        return run_plan(prepared.plan, prepared.options(home), RunObserver())
    print_notes(prepared.plan)
    result = run_plan(prepared.plan, prepared.options(home), _PrintedRanks())
    _print_end(result)
    return result


def written_files(result: RunResult) -> dict[str, dict[str, Any]]:
    """By node what a script has written beside itself, as on Azure ML in its working folder: the folder, and files."""
    found = {}
    for step in result.steps.values():
        folder = StepFolder(step.folder)
        for node in range(step.nodes):
            files = sorted(_new_files(folder.work(node), folder.snapshot))
            if files:
                found[str(node)] = {"folder": str(folder.work(node)), "files": files}
    return found


class _PrintedRanks(RunObserver):
    """Prints what the ranks of the one step print, line by line, each with its rank where there are several."""

    def __init__(self) -> None:
        self._read: dict[Path, int] = {}
        self._execution: StepExecution | None = None

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """Name the run, and on how many ranks it is."""
        (step,) = plan.steps.values()
        where = f"{with_count(step.ranks, 'rank')}, {with_count(step.nodes, 'node')} x {step.processes}"
        print(f"run {run.id} on {where}, in {run.path}", flush=True)

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Print what is new."""
        (self._execution,) = steps.values()
        self._print_new(last=False)

    def changed(self, step: StepResult) -> None:
        """Print what is left of an attempt that has ended, before the next one writes to the same logs."""
        if step.status == RETRYING and step.failure is not None:
            print(f"attempt {step.attempts} failed ({redact(step.failure.message)}), trying again", flush=True)
            self._read.clear()
        elif step.seconds and self._execution is not None and self._execution.is_finished:
            self._print_new(last=True)

    def _print_new(self, *, last: bool) -> None:
        execution = self._execution
        if execution is None:
            return
        logs = logs_by_rank(execution.folder)
        for rank, path in logs.items():
            mark = f"[rank {rank}] " if execution.step.ranks > 1 else ""
            for line in self._new_lines(path, last=last):
                shown = point_at_sources([line], execution.folder, execution.files)[0] if _TRACE.match(line) else line
                print(mark + redact(shown))
        sys.stdout.flush()

    def _new_lines(self, path: Path, *, last: bool) -> Iterator[str]:
        """The lines that are whole, or with ``last`` all that is there; of a progress bar the last state."""
        start = self._read.get(path, 0)
        with path.open("rb") as file:
            file.seek(start)
            new = file.read()
        whole = new if last else new[: new.rfind(b"\n") + 1]
        self._read[path] = start + len(whole)
        lines = whole.decode(errors="replace").removesuffix("\n").split("\n") if whole else []
        yield from (line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _new_files(work: Path, snapshot: Path) -> Iterator[str]:
    """The files of a working folder that were not in the snapshot, or are not as they were."""
    for path in work.rglob("*") if work.is_dir() else ():
        name = path.relative_to(work)
        if not path.is_file() or "__pycache__" in name.parts:
            continue
        before = snapshot / name
        if not before.is_file() or (before.stat().st_size, before.stat().st_mtime_ns) != (
            path.stat().st_size,
            path.stat().st_mtime_ns,
        ):
            yield name.as_posix()


def _print_end(result: RunResult) -> None:
    """The end of a run for people: how it ended, what it has written and where, and what can be asked next."""
    (step,) = result.steps.values()
    if result.explanation:
        print(result.explanation, file=sys.stderr)
    print(f"{result.status} in {duration_words(step.seconds)}")
    lines = []
    for node, written in written_files(result).items():
        where = f"written on node {node}" if step.nodes > 1 else "written"
        lines.append((where, f"{written['folder']}: {_listed(written['files'])}"))
    lines.append(("logs", str(step.folder / "user_logs")))
    lines.append(("page of the run", str(result.run_dir / "report.html")))
    print(aligned_rows(lines, keep_whole=True))


def _listed(files: list[str]) -> str:
    """The files, those of a folder as one."""
    tops = Counter(name.partition("/")[0] + "/" if "/" in name else name for name in files)
    shown = [f"{top} ({with_count(count, 'file')})" if top.endswith("/") else top for top, count in tops.items()]
    shown.sort(key=lambda one: not one.startswith(tuple(f"{kept}/" for kept in KEPT_FOLDERS)))
    rest = f" and {len(shown) - _SHOWN_FILES} more" if len(shown) > _SHOWN_FILES else ""
    return ", ".join(shown[:_SHOWN_FILES]) + rest
