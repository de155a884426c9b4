"""``allranks runs --azure``: the jobs of a workspace, their steps and logs; watch one, cancel one."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from typing import TYPE_CHECKING, Any

from allranks.cli import text
from allranks.cli.inputs import workspace_of
from allranks.errors import AzureError, UnknownNameError, UsageError
from allranks.log_text import clean_text
from allranks.wording import duration_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allranks.azure.client import Workspace
    from allranks.azure.jobs import JobState, StepState

ONLY_AZURE = ("watch", "cancel")
"""The commands that exist for jobs and not for local runs."""
_LISTED = 50
"""So many of the newest jobs are listed."""


def newest_jobs(args: argparse.Namespace) -> list[JobState]:
    """The newest jobs of the workspace."""
    from allranks.azure.explain import service_errors
    from allranks.azure.jobs import list_jobs

    client, workspace = _connected(args)
    with service_errors("listing jobs", workspace):
        return list_jobs(client, _LISTED)


def job_cells(job: JobState) -> list[str]:
    """Return a job's line in the list of runs, with the cells of `run_rows.run_cells`."""
    created = "" if job.created is None else f"{job.created.astimezone():%Y-%m-%d %H:%M:%S}"
    return [job.name, job.status, "on Azure", created, "", job.display_name or job.experiment, ""]


def job_words(job: JobState) -> str:
    """What a job is searched by, case folded."""
    return f"{job.name}\n{job.display_name}\n{job.experiment}".casefold()


def run_on_azure(command: str, args: argparse.Namespace) -> int:
    """Run a command of ``allranks runs`` on a job of the workspace instead of a run of this folder."""
    if command not in (*_COMMANDS, "watch"):
        hint = "Archive it in Studio; one that runs is ended with `allranks runs cancel JOB`."
        raise UsageError("a job on Azure is not removed from here.", hint)
    from allranks.azure.explain import service_errors

    client, workspace = _connected(args)
    with service_errors(f"asking about {args.run}", workspace):
        job = _find(client, workspace, args.run)
    if command == "watch":
        return _watch(args, client, workspace, job)
    with service_errors(f"asking about {args.run}", workspace):
        return _COMMANDS[command](args, client, job)


def _connected(args: argparse.Namespace) -> tuple[Any, Workspace]:
    from allranks.azure.client import connect_workspace

    workspace = workspace_of(args)
    return connect_workspace(workspace), workspace


def _find(client: Any, workspace: Workspace, name: str) -> JobState:
    from allranks.azure.jobs import job_state, list_jobs

    if name != "latest":
        return job_state(client, name)
    newest = list_jobs(client, 1)
    if not newest:
        raise UnknownNameError(f"there are no jobs in the {workspace}.", "`allranks submit` sends one.")
    return newest[0]


def _watch(args: argparse.Namespace, client: Any, workspace: Workspace, job: JobState) -> int:
    """Follow it; 0 if it succeeds, 1 otherwise."""
    from allranks.cli.watching import follow_job, outcome_document, outcome_summary
    from allranks.local.result import SUCCEEDED

    if not args.json:
        print(f"job {job.name} in the {workspace}\n  Studio  {job.studio}", flush=True)
    outcome = follow_job(client, workspace, job, as_json=args.json)
    text.print_output(outcome_document(job, outcome) if args.json else outcome_summary(job, outcome))
    return 0 if outcome.status == SUCCEEDED else 1


def _show(args: argparse.Namespace, client: Any, job: JobState) -> int:
    from allranks.azure.jobs import list_steps

    steps = list_steps(client, job.name)
    if args.json:
        text.print_output({**job.document(), "steps": {step.name: step.document() for step in steps}})
        return 0
    print(text.aligned_rows([job_cells(job)], indent=""))
    cells = [[step.name, step.status, duration_words(step.seconds), step.error] for step in steps]
    print(f"  Studio  {job.studio}\nsteps\n{text.aligned_rows(cells, keep_whole=True)}")
    return 0


def _logs(args: argparse.Namespace, client: Any, job: JobState) -> int:
    """Print a step's logs, of every rank or of one; ``--follow`` goes on until the step is over."""
    from allranks.azure.jobs import FINAL_STATUSES, list_logs, list_steps, read_log
    from allranks.azure.watch import poll_pause

    printed: dict[str, int] = {}
    for looks in itertools.count():
        step = _step(list_steps(client, job.name), args.step, job)
        found = {name: address for name, address in list_logs(client, step.run).items() if _is_of(name, args.rank)}
        if args.json:
            text.print_output({"job": job.name, "step": step.name, "logs": sorted(found)})
            return 0
        over = step.status in FINAL_STATUSES or not args.follow
        if over and not found:
            which = "" if args.rank is None else f" of rank {args.rank}"
            raise UnknownNameError(f"step {step.name} of {job.name} has no log{which}; it is {step.status}.")
        for name, address in found.items():
            written = clean_text(read_log(client, address), styled=False)
            # Of a line that is being written the rest comes with a later look.
            lines = (written if over else written[: written.rfind("\n") + 1]).splitlines()
            mark = f"[{name.rpartition('/')[2].removesuffix('.txt')}] " if len(found) > 1 else ""
            for line in lines[printed.get(name, 0) :]:
                print(mark + line, flush=args.follow)
            printed[name] = len(lines)
        if over:
            return 0
        time.sleep(poll_pause(looks))
    raise AssertionError  # the loop above only returns


def _is_of(log: str, rank: int | None) -> bool:
    """Whether a log is that of a rank; a step of one process has one log, std_log.txt."""
    number = log.rpartition("_")[2].removesuffix(".txt")
    return rank is None or (int(number) if number.isdigit() else 0) == rank


def _step(steps: Sequence[StepState], name: str, job: JobState) -> StepState:
    found = {step.name: step for step in steps}
    if name not in found:
        close = text.name_suggestion(name, found)
        raise UnknownNameError(f"job {job.name} has no step {name!r}{close}.", f"Its steps: {', '.join(found)}.")
    return found[name]


def _open(args: argparse.Namespace, _client: Any, job: JobState) -> int:
    print(json.dumps({"studio": job.studio}) if args.json else job.studio)
    if not args.json:
        text.open_in_browser(job.studio)
    return 0


def _cancel(args: argparse.Namespace, client: Any, job: JobState) -> int:
    """Cancel it; a job that is over stays as it ended, which is an error unless it was cancelled."""
    from allranks.azure.jobs import FINAL_STATUSES, cancel_job
    from allranks.local.result import CANCELLED

    if job.status in FINAL_STATUSES and job.status != CANCELLED:
        raise AzureError(f"job {job.name} is over: it has {job.status}.")
    after = cancel_job(client, job.name)
    text.print_output(after.document() if args.json else f"{after.name}: {after.status}")
    return 0


_COMMANDS = {"show": _show, "logs": _logs, "open": _open, "cancel": _cancel}
