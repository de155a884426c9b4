"""``allranks runs``: the runs of this folder, their steps, logs and pages."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks.cli import azure_runs, text
from allranks.cli.live_table import SHOWN_METRICS
from allranks.cli.workspace import add_workspace_arguments
from allranks.errors import StorageError, UnknownNameError, UsageError
from allranks.local.assets import registered_below
from allranks.local.cache import forget_unfinished
from allranks.local.folders import DEFAULT_HOME, Home, RunFolder, StepFolder, read_json
from allranks.local.report import write_report
from allranks.local.result import CANCELLED, FAILED, RUNNING, SKIPPED, SUCCEEDED
from allranks.redaction import redact

NAME = "runs"
HELP = "list the runs of this folder or the jobs on Azure, show, follow, cancel or remove one"

FINISHED = (SUCCEEDED, FAILED, SKIPPED, CANCELLED)
POLL = 0.2
"""Seconds between two looks at a log that is followed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their arguments; ``--runs-dir`` and ``--json`` may stand before or after a command."""
    common = argparse.ArgumentParser(add_help=False)
    for options, default in ((parser, DEFAULT_HOME), (common, argparse.SUPPRESS)):
        options.add_argument("--runs-dir", metavar="DIR", default=default, help=f"default: {DEFAULT_HOME}")
    for options, unset in ((parser, False), (common, argparse.SUPPRESS)):
        options.add_argument("--json", action="store_true", default=unset, help="print one JSON document")
        options.add_argument("--azure", action="store_true", default=unset, help="the jobs of a workspace of Azure ML")
        add_workspace_arguments(options, None if options is parser else argparse.SUPPRESS)
    parser.set_defaults(command=list_runs, name="list")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    def command(name: str, function: Callable[..., int], explanation: str) -> argparse.ArgumentParser:
        below = commands.add_parser(name, parents=[common], help=explanation, description=explanation)
        below.set_defaults(command=function, name=name)
        if function is not list_runs:
            below.add_argument("run", metavar="RUN", help="a run's id, a unique beginning of it, or `latest`")
        return below

    command("list", list_runs, "list all runs, newest first")
    command("show", show, "show the steps, outputs and metrics of a run")
    logs_parser = command("logs", logs, "print the log of a step, of every rank or of one")
    logs_parser.add_argument(
        "step",
        metavar="STEP",
        nargs="?",
        help="the step's name; a nested one is OUTER.INNER, a trial SWEEP.NUMBER; without one the steps are listed",
    )
    logs_parser.add_argument("--rank", type=int, metavar="N", help="this rank only")
    logs_parser.add_argument("--follow", action="store_true", help="go on printing until the step has finished")
    command("open", open_page, "open a run's page in the browser")
    remove_parser = command("remove", remove, "remove a run with its outputs and logs")
    remove_parser.add_argument(
        "--force", action="store_true", help="even if a later run reuses its outputs, or if they are registered"
    )
    command("watch", show, "follow a job on Azure to its end, with the log of a step that fails")
    command("cancel", show, "cancel a job on Azure")


def run(args: argparse.Namespace) -> int:
    """Run the command that was asked for; ``list`` without one."""
    if args.name in azure_runs.ONLY_AZURE or (args.azure and args.name != "list"):
        return azure_runs.run(args.name, args)
    path = Path(args.runs_dir)
    if path.exists() and not path.is_dir():
        raise UsageError(f"--runs-dir {args.runs_dir!r} is a file, not a folder.", "Name the folder that holds runs/.")
    return int(args.command(args, Home(path)))


def state_of(folder: RunFolder) -> dict[str, Any]:
    """The run's document; a run whose engine is gone before its end is ``cancelled``, not ``running``."""
    state: dict[str, Any] = read_json(folder.state) or {"run_id": folder.id, "status": "unknown", "steps": {}}
    if state["status"] == RUNNING:  # run.json is written when a run begins and when it ends, step.json in between
        steps = {name: {**s, **(read_json(folder.step(name).state) or {})} for name, s in state["steps"].items()}
        state["steps"] = steps
        if not folder.alive:
            state["status"] = CANCELLED
            state["steps"] = {n: s if s["status"] in FINISHED else {**s, "status": CANCELLED} for n, s in steps.items()}
    return state


def list_runs(args: argparse.Namespace, home: Home) -> int:
    """Print a line for each run, newest first; with ``--azure`` the jobs of the workspace after them."""
    states = [state_of(folder) for folder in reversed(home.all_runs())]
    jobs = azure_runs.jobs(args) if args.azure else []
    if args.json:
        document: dict[str, Any] = {"runs": states}
        print(json.dumps(document | ({"jobs": [job.document() for job in jobs]} if args.azure else {}), indent=1))
    elif states or jobs:
        lines = [_run_cells(state) for state in states] + [azure_runs.cells(job) for job in jobs]
        print(text.rows(lines, indent="", keep_whole=True))
    else:
        print(f"no runs in {home.runs}; `allranks run` starts one")
    return 0


def show(args: argparse.Namespace, home: Home) -> int:
    """Print one run: its steps with their outputs and metrics."""
    folder = home.find(args.run)
    state = state_of(folder)
    if args.json:
        print(json.dumps(state, indent=1))
        return 0
    print(text.rows([_run_cells(state)], indent="", keep_whole=True))
    print(f"  folder  {folder.path}")
    if folder.report.is_file():
        print(f"  page    {folder.report}")
    steps = state["steps"].items()
    outputs = [(f"{name}.{port}", path) for name, step in steps for port, path in (step.get("outputs") or {}).items()]
    failures = [(name, step["failure"]["message"]) for name, step in steps if step.get("failure")]
    for title, lines in (
        ("steps", [_step_cells(*step) for step in steps]),
        ("outputs", outputs),
        ("failures", failures),
    ):
        if lines:
            print(f"{title}\n{text.rows(lines, keep_whole=True)}")
    return 0


def logs(args: argparse.Namespace, home: Home) -> int:
    """Print the logs of a step, every rank's lines marked with its number when there are several."""
    folder = home.find(args.run)
    steps = _steps_and_trials(folder)
    if args.step is None:
        return _list_logs(args, home, folder, steps)
    if args.step not in steps:
        close = text.nearest(args.step, steps)
        raise UnknownNameError(f"run {folder.id} has no step {args.step!r}{close}.", f"Its steps: {', '.join(steps)}.")
    step = _step_with_logs(home, folder, args.step, steps[args.step])
    if args.json:
        if args.follow:
            raise UsageError("--follow goes on printing and --json prints one document.", "Leave one of them out.")
        found = {str(rank): str(path) for rank, path in _chosen(step, args.rank).items()}
        print(json.dumps({"run_id": folder.id, "step": args.step, "logs": found}, indent=1))
        return 0

    def over() -> bool:
        state = state_of(folder)
        steps = _steps_and_trials(folder)
        return not args.follow or state["status"] != RUNNING or steps[args.step]["status"] in FINISHED

    for line in lines_of(lambda: _chosen(step, args.rank, wait=args.follow), over):
        print(line, flush=args.follow)
    return 0


def _list_logs(args: argparse.Namespace, home: Home, folder: RunFolder, steps: Mapping[str, Any]) -> int:
    """Print which steps have how many logs, and where."""
    if args.follow or args.rank is not None:
        raise UsageError("--follow and --rank are about one step.", f"Its steps: {', '.join(steps)}.")
    found = {name: _logs(_step_with_logs(home, folder, name, step)) for name, step in steps.items()}
    if args.json:
        paths = {name: {str(rank): str(path) for rank, path in ranks.items()} for name, ranks in found.items()}
        print(json.dumps({"run_id": folder.id, "steps": paths}, indent=1))
        return 0
    places = {name: str(next(iter(ranks.values())).parent) if ranks else "" for name, ranks in found.items()}
    numbers = {name: text.counted(len(ranks), "log") if ranks else "no logs" for name, ranks in found.items()}
    cells = [(name, steps[name]["status"], numbers[name], places[name]) for name in found]
    print(f"{text.rows(cells, keep_whole=True)}\none step's log: allranks runs logs {folder.id} STEP")
    return 0


def lines_of(files: Callable[[], Mapping[int, Path]], over: Callable[[], bool]) -> Iterator[str]:
    """The lines of growing log files as they are written, secrets blotted out, until ``over`` says that all is there.

    Args:
        files: log by rank; asked again on every look, since a rank's log appears when the rank starts.
        over: whether nothing more will be written.
    """
    read: dict[int, int] = {}
    while True:
        last = over()  # asked before reading: what was written until then is still read below
        found = files()
        for rank, path in found.items():
            start = read.get(rank, 0)
            start = start if start <= path.stat().st_size else 0  # a new attempt starts its log anew
            new = _read_from(path, start)
            whole = new if last else new[: new.rfind(b"\n") + 1]
            read[rank] = start + len(whole)
            mark = f"[rank {rank}] " if len(found) > 1 else ""
            yield from (mark + line for line in redact(whole.decode(errors="replace")).splitlines())
        if last:
            return
        time.sleep(POLL)


def open_page(args: argparse.Namespace, home: Home) -> int:
    """Open the run's page where there is a screen, and print its path."""
    folder = home.find(args.run)
    page = folder.report.absolute()
    if not folder.alive and (read_json(folder.state) or {}).get("status") == RUNNING:
        write_report(folder, state_of(folder))  # its engine was killed
    if not page.is_file():
        raise UnknownNameError(f"run {folder.id} has no page yet.", "It is written when the run is a second old.")
    print(json.dumps({"report": str(page)}) if args.json else page)
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if screen and not args.json:  # without one, the standard library would start a text browser in this terminal
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def remove(args: argparse.Namespace, home: Home) -> int:
    """Remove a run that is over, and on which no later run and no registered asset leans."""
    folder = home.find(args.run)
    if folder.alive:
        raise UsageError(f"run {folder.id} is running.", "End it first: Ctrl+C where it was started.")
    others = [other for other in home.all_runs() if other.id != folder.id]
    users = [other.id for other in others if folder.id in _reused(state_of(other))]
    if users and not args.force:
        raise UsageError(
            f"run {folder.id} holds outputs that other runs reuse: {', '.join(users)}.", "--force removes it."
        )
    assets = registered_below(home, folder.path)
    if assets and not args.force:
        raise UsageError(
            f"run {folder.id} holds what is registered as {', '.join(assets)}.",
            "--force removes it; a later run that names it is then refused.",
        )
    try:
        forget_unfinished(home, others)
        aside = folder.path.rename(
            folder.path.with_name(f".{folder.id}.removed")
        )  # gone at once, even if the rest is slow
        shutil.rmtree(aside, onerror=_make_writable)
    except OSError as error:
        raise StorageError(f"cannot remove {folder.path}: {error.strerror or error}.") from error
    print(json.dumps({"removed": folder.id}) if args.json else f"removed {folder.id}")
    return 0


def _make_writable(function: Callable[[str], object], path: str, _error: object) -> None:
    """Outputs and snapshots may be read-only: allow writing to the folder, then try again."""
    if not os.path.lexists(path):  # somebody else removes the same
        return
    for place in (Path(path).parent, Path(path)):
        if not place.is_symlink():
            place.chmod(0o700)
    function(path)


def _reused(state: Mapping[str, Any]) -> set[str]:
    steps = state["steps"].values()
    trials = [trial for step in steps for trial in step.get("trials", ())]
    return {one.get("reused_from") for one in (*steps, *trials)} - {None}


def _steps_and_trials(folder: RunFolder) -> dict[str, Any]:
    """What has logs: the steps, and the trials of sweeps as SWEEP.NUMBER."""
    found = dict(state_of(folder)["steps"])
    for name, step in list(found.items()):
        for trial in (read_json(folder.step(name).state) or step).get("trials", ()):
            found[f"{name}.{trial['number']}"] = trial
    return found


def _step_with_logs(home: Home, folder: RunFolder, name: str, step: Mapping[str, Any]) -> StepFolder:
    """The step's folder, or for a reused step that of the run in which it really ran."""
    own = folder.step(name)
    earlier = step.get("reused_from")
    return own if own.logs.is_dir() or not earlier else home.run(earlier).step(name)


def _chosen(step: StepFolder, rank: int | None, *, wait: bool = False) -> dict[int, Path]:
    """The logs of all ranks, or of one; a step without a distribution has only rank 0."""
    found = _logs(step)
    if wait and (rank is None or rank not in found):
        return {} if rank is not None else found
    if not found:
        raise UnknownNameError(f"there is no log in {step.logs}: the step has not started.", "--follow waits for it.")
    if rank is not None and rank not in found:
        known = ", ".join(map(str, sorted(found)))
        raise UnknownNameError(f"the step has no rank {rank}.", f"Its ranks: {known}.")
    return {rank: found[rank]} if rank is not None else found


def _logs(step: StepFolder) -> dict[int, Path]:
    """The logs that there are, by rank."""
    found = {0: step.log(None)} if step.log(None).is_file() else {}
    for path in step.logs.glob("std_log_process_*.txt"):
        found[int(path.stem.rpartition("_")[2])] = path
    return dict(sorted(found.items()))


def _read_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()


def _run_cells(state: Mapping[str, Any]) -> list[str]:
    steps = state["steps"].values()
    done = sum(step["status"] == SUCCEEDED for step in steps)
    started, ended = state.get("started"), state.get("ended")
    return [
        state["run_id"],
        state["status"],
        f"{done}/{len(steps)} steps",
        _when(started),
        "" if started is None or ended is None else text.seconds(ended - started),
        _asked(state),
        _measured(state["steps"]),
    ]


def _asked(state: Mapping[str, Any]) -> str:
    """The target with the values and the scale that were given: what tells one run from another."""
    values = [f"{name}={value}" for name, value in (state.get("values") or {}).items()]
    scale = [f"--scale {step}={nodes}x{each}" for step, (nodes, each) in (state.get("scale") or {}).items()]
    return " ".join([str(state.get("target") or ""), *values, *scale])


def _measured(steps: Mapping[str, Any]) -> str:
    """The first of accuracy, validation accuracy and loss that a step has, for each step that has it."""
    for metric in SHOWN_METRICS:
        found = {name: step["metrics"][metric] for name, step in steps.items() if metric in (step.get("metrics") or {})}
        if found:
            return "  ".join(f"{name}.{metric}={value:.4g}" for name, value in found.items())
    return ""


def _step_cells(name: str, step: Mapping[str, Any]) -> list[str]:
    metrics = " ".join(f"{key}={value:.4g}" for key, value in (step.get("metrics") or {}).items())
    took = "" if step.get("seconds") is None else text.seconds(step["seconds"])
    ranks = f"{step['nodes']}x{step['processes']}" if step.get("nodes") else ""
    return [name, step["status"] + (" (reused)" if step.get("reused") else ""), ranks, took, metrics]


def _when(started: object) -> str:
    """A start time, in epoch seconds, as local date and time."""
    if not isinstance(started, int | float):
        return ""
    return f"{datetime.fromtimestamp(started, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"
