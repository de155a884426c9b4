"""``allranks runs``: the runs of this folder, their steps, logs and pages; removes one, unless others lean on it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from allranks.cli import azure_runs, text
from allranks.cli.child_rows import child_rows, metrics_text
from allranks.cli.compare_runs import print_comparison
from allranks.cli.inputs import add_workspace_arguments
from allranks.cli.run_list import ListChoice, ListedRuns, RunIndex, add_list_arguments, list_choice
from allranks.cli.run_logs import print_logs
from allranks.cli.run_rows import run_cells, run_row
from allranks.cli.run_state import read_run_state, reused_runs
from allranks.cli.sparklines import draw_sparkline, main_metric
from allranks.errors import StorageError, UnknownNameError, UsageError
from allranks.local.assets import assets_below
from allranks.local.cache import forget_unfinished, resume_rows
from allranks.local.folders import DEFAULT_HOME, RunFolder, RunsHome
from allranks.local.goodput import past_restarts, restart_words
from allranks.local.input_sources import DEFAULT
from allranks.local.logged import MetricCurve
from allranks.local.metrics_file import read_metrics_document
from allranks.local.page.document import curves_of_steps, read_step_details, run_document
from allranks.local.past import past_child
from allranks.local.record_shapes import read_json_file
from allranks.local.report import write_run_page
from allranks.local.resources.summary import step_resources
from allranks.local.resources.words import resource_lines
from allranks.local.result import CANCELLED, FAILED, RUNNING
from allranks.local.tracking.removal import remove_tracked_runs
from allranks.wording import number_words, ranks_words, status_words, step_time, with_count

_LONGEST = 100  # characters of a param or tag
_CURVE_WIDTH = 40  # characters

HELP = "list the runs of this folder or the jobs on Azure, show, follow, cancel or remove one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their arguments; ``--runs-dir`` and ``--json`` may stand before or after a command."""
    common = argparse.ArgumentParser(add_help=False)
    for options, home, unset in ((parser, DEFAULT_HOME, False), (common, argparse.SUPPRESS, argparse.SUPPRESS)):
        options.add_argument("--runs-dir", metavar="DIR", default=home, help=f"default: {DEFAULT_HOME}")
        options.add_argument("--json", action="store_true", default=unset, help="print one JSON document")
        options.add_argument("--azure", action="store_true", default=unset, help="the jobs of a workspace of Azure ML")
        add_workspace_arguments(options, None if options is parser else argparse.SUPPRESS)
    parser.set_defaults(command=_list_runs, name="list")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    def command(name: str, function: Callable[..., int], explanation: str) -> argparse.ArgumentParser:
        below = commands.add_parser(name, parents=[common], help=explanation, description=explanation)
        below.set_defaults(command=function, name=name)
        if function not in (_list_runs, _serve_pages, print_comparison):
            below.add_argument("run", metavar="RUN", help="a run's id, a unique beginning of it, or `latest`")
        return below

    add_list_arguments(command("list", _list_runs, "list the runs, newest first"))
    command("show", _show_run, "show the steps, outputs and metrics of a run")
    logs_parser = command("logs", print_logs, "print the log of a step, of every rank or of one")
    logs_parser.add_argument(
        "step",
        metavar="STEP",
        nargs="?",
        help="the step's name; a nested one is OUTER.INNER, a trial SWEEP.NUMBER; without one the steps are listed",
    )
    logs_parser.add_argument("--rank", type=int, metavar="N", help="this rank only")
    logs_parser.add_argument("--follow", action="store_true", help="go on printing until the step has finished")
    open_parser = command("open", _open_page, "open a run's page in the browser, or a tool on what it has logged")
    tools = open_parser.add_mutually_exclusive_group()
    tools.add_argument("--tensorboard", action="store_true", help="TensorBoard on its event files, until Ctrl+C")
    tools.add_argument("--mlflow", action="store_true", help="MLflow's pages on all runs of the folder, until Ctrl+C")
    remove_parser = command(
        "remove", _remove_run, "remove a run with its outputs, its logs and what it has logged with MLflow"
    )
    lost = "even if a later run reuses its outputs, or if they are registered"
    remove_parser.add_argument("--force", action="store_true", help=lost)
    compare_parser = command("compare", print_comparison, "compare runs: what differs, their metrics and curves")
    compare_parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="two or more; the first is what others are held to"
    )
    compare_parser.add_argument("--page", metavar="FILE", help="write a page (HTML) with the curves over each other")
    serve_parser = command("serve", _serve_pages, "serve the runs' pages on this machine, live, until Ctrl+C")
    serve_parser.add_argument("run", metavar="RUN", nargs="?", help="the run to begin with; default: the list of all")
    serve_parser.add_argument("--port", type=int, default=0, metavar="N", help="default: a free one")
    command("watch", _show_run, "follow a job on Azure to its end, with the log of a step that fails")
    command("cancel", _show_run, "cancel a job on Azure")


def run(args: argparse.Namespace) -> int:
    """Run the command that was asked for; ``list`` without one."""
    if args.name in azure_runs.ONLY_AZURE or (args.azure and args.name != "list"):
        return azure_runs.run_on_azure(args.name, args)
    path = Path(args.runs_dir)
    if path.exists() and not path.is_dir():
        raise UsageError(f"--runs-dir {args.runs_dir!r} is a file, not a folder.", "Name the folder that holds runs/.")
    return int(args.command(args, RunsHome(path)))


def _list_runs(args: argparse.Namespace, home: RunsHome) -> int:
    """Print a line for each run that was asked for; with ``--azure`` the jobs of the workspace after them."""
    choice, index = list_choice(args), RunIndex(home)
    listed = index.choose(choice)
    jobs = azure_runs.newest_jobs(args) if args.azure else []
    jobs = [job for job in jobs if choice.fits(job.status, azure_runs.job_words(job))]
    if args.json:
        runs = {"runs": [read_run_state(folder) for folder in listed.folders], "total": listed.total}
        text.print_output(runs | ({"jobs": [job.document() for job in jobs]} if args.azure else {}))
        return 0
    lines = [run_cells(index.row(folder), choice.metric) for folder in listed.folders]
    lines += [azure_runs.job_cells(job) for job in jobs]
    if lines:
        print(text.aligned_rows(lines, indent="", keep_whole=True))
        _note_others(choice, listed)
    elif count := len(home.all_runs()):
        print(f"none of the {with_count(count, 'run')} in {home.runs} fits")
    else:
        print(f"no runs in {home.runs}; `allranks run` starts one")
    return 0


def _note_others(choice: ListChoice, listed: ListedRuns) -> None:
    """How many more fit, and what shows them."""
    if len(listed.folders) == listed.total:
        return
    last = listed.first + len(listed.folders) - 1
    following = f"`--page {choice.page + 1}` shows the next, " if choice.page < listed.pages else ""
    text.print_note(f"runs {listed.first} to {last} of {listed.total}; {following}`--limit 0` all.")


def _show_run(args: argparse.Namespace, home: RunsHome) -> int:
    """Print one run: its steps with their outputs and metrics."""
    folder = home.find(args.run)
    state = read_run_state(folder)
    if args.json:
        text.print_output(run_document(folder, state))
        return 0
    print(text.aligned_rows([run_cells(run_row(state))], indent="", keep_whole=True))
    print(text.aligned_rows(list(_about_run(folder, state)), keep_whole=True))
    steps = state["steps"].items()
    outputs = [(f"{name}.{port}", path) for name, step in steps for port, path in (step.get("outputs") or {}).items()]
    failures = [(name, _failure_words(step["failure"])) for name, step in steps if step.get("failure")]
    restarts = [(name, words) for name, step in steps if (words := restart_words(past_restarts(step)))]
    titled: dict[str, list[Any]] = {"steps": [cells for step in steps for cells in _step_cells(*step)]}
    curves = curves_of_steps(folder, state)
    titled["curves"] = [cells for name, step in steps for cells in _curve_cells(name, step, curves[name])]
    titled["inputs"] = [cells for name, _ in steps for cells in _input_cells(name, read_step_details(folder, name))]
    for key in ("params", "tags"):
        titled[key] = [pair for name, step in steps for pair in _pairs(name, step.get(key))]
    titled["resources"] = [cells for name, _ in steps for cells in _resource_cells(folder, name)]
    titled |= {"outputs": outputs, "restarts": restarts, "failures": failures}
    for title, lines in titled.items():
        if lines:
            print(f"{title}\n{text.aligned_rows(lines, keep_whole=True)}")
    return 0


def _failure_words(failure: Mapping[str, Any]) -> str:
    """Why a step has failed, and of what kind that is."""
    return str(failure["message"]) + (f" ({failure['cause']})" if failure.get("cause") else "")


def _about_run(folder: RunFolder, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where a run is, and of one that has not succeeded how it goes on."""
    yield "folder", str(folder.path)
    if folder.report.is_file():
        yield "page", str(folder.report)
    if state.get("message"):
        yield "note", state["message"]
    if state["status"] in (FAILED, CANCELLED):
        yield from resume_rows(folder)


def _open_page(args: argparse.Namespace, home: RunsHome) -> int:
    """Open the run's page where there is a screen, and print its path."""
    folder = home.find(args.run)
    if args.tensorboard or args.mlflow:
        from allranks.cli.run_tools import show_in_mlflow, show_in_tensorboard

        return show_in_tensorboard(folder) if args.tensorboard else show_in_mlflow(folder)
    page = folder.report.absolute()
    if not folder.alive and (read_json_file(folder.state) or {}).get("status") == RUNNING:
        write_run_page(folder, read_run_state(folder))  # its engine was killed
    if not page.is_file():
        raise UnknownNameError(f"run {folder.id} has no page yet.", "It is written when the run is a second old.")
    print(json.dumps({"report": str(page)}) if args.json else page)
    if not args.json:
        text.open_in_browser(page.as_uri())
    return 0


def _serve_pages(args: argparse.Namespace, home: RunsHome) -> int:
    """Serve the pages until Ctrl+C; print where, and open it where there is a screen."""
    from allranks.cli.run_server import serve_runs

    folder = home.find(args.run) if args.run else None

    def opened(address: str) -> None:
        print(json.dumps({"address": address}) if args.json else f"{address}\nCtrl+C ends it", flush=True)
        if not args.json:
            text.open_in_browser(address)

    return serve_runs(home, folder, args.port, opened)


def _remove_run(args: argparse.Namespace, home: RunsHome) -> int:
    """Remove a run that is over, and on which no later run and no registered asset leans."""
    folder = home.run(home.find(args.run).id)  # refuses a link to a folder elsewhere
    home.prepare()  # refuses links too, before anything is removed
    if folder.alive:
        raise UsageError(f"run {folder.id} is running.", "End it first: Ctrl+C where it was started.")
    others = [other for other in home.all_runs() if other.id != folder.id]
    users = [other.id for other in others if folder.id in reused_runs(read_run_state(other))]
    if users and not args.force:
        message = f"run {folder.id} holds outputs that other runs reuse: {', '.join(users)}."
        raise UsageError(message, "--force removes it.")
    assets = assets_below(home, folder.path)
    if assets and not args.force:
        message = f"run {folder.id} holds what is registered as {', '.join(assets)}."
        raise UsageError(message, "--force removes it; a later run that names it is then refused.")
    aside = folder.path.with_name(f".{folder.id}.removed")
    try:
        folder.path.rename(aside)  # gone at once, even if the rest is slow
        remove_tracked_runs(home, folder.id)
        forget_unfinished(home, others)
        shutil.rmtree(aside, onerror=_make_writable)
    except StorageError:  # of the database: the run stays, to be removed later
        aside.rename(folder.path)
        raise
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


def _step_cells(name: str, step: Mapping[str, Any]) -> list[list[str]]:
    """The line of a step, and those of the runs that its script has made itself."""
    metrics = metrics_text(read_metrics_document(step.get("metrics")))
    metrics = metrics if step.get("decision") is None else f"the condition is {str(step['decision']).lower()}"
    ranks = ranks_words(step.get("nodes", 0), step.get("processes", 0))
    own = [name, status_words(step["status"], is_reused=step.get("reused", False)), ranks, step_time(step), metrics]
    children = [past_child(child) for child in step.get("child_runs", ())]
    return [
        own,
        *([child, status, "", seconds, found] for child, status, seconds, found in child_rows(children, metrics_text)),
    ]


def _curve_cells(name: str, step: Mapping[str, Any], curves: Mapping[str, MetricCurve]) -> Iterator[list[str]]:
    """The curve of a step's main metric and its last value."""
    metric = main_metric(curves, step.get("primary_metric", ""))
    if metric:
        values = [value for _, value in curves[metric]]
        yield [f"{name}.{text.one_line(metric)}", draw_sparkline(values, _CURVE_WIDTH), number_words(values[-1])]


def _resource_cells(folder: RunFolder, name: str) -> Iterator[list[str]]:
    """What the step has used of the machine, and its ranks."""
    for whose, words in resource_lines(step_resources(folder, name)[0]):
        yield [f"{name} {whose}".rstrip(), *words]


def _input_cells(name: str, details: Mapping[str, Any]) -> Iterator[list[str]]:
    """An input that is no default, its value and where that comes from; all are on the page."""
    for port, value in details.get("inputs", {}).items():
        source = details.get("input_sources", {}).get(port, {})
        if source.get("kind") != DEFAULT:
            yield [f"{name}.{port}", _one_line(value), source.get("words", "")]


def _pairs(name: str, pairs: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """A line for each param or tag of a step; of a long one its beginning, the whole is on the page."""
    return [(f"{name}.{key}", _one_line(value)) for key, value in (pairs or {}).items()]


def _one_line(value: str) -> str:
    shown = text.one_line(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
