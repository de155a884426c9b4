"""``allranks submit``: send a pipeline or a component to a workspace of Azure ML, as ``allranks run`` runs it here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from allranks.cli.inputs import (
    add_input_arguments,
    add_repeated,
    add_workspace_arguments,
    parse_each,
    parse_scale,
    parse_value,
    workspace_of,
)
from allranks.cli.target import folder_document, target_folder
from allranks.cli.text import aligned_rows, print_note, print_output
from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.azure.assemble import AssembledJob
    from allranks.azure.submit import RegisteredComponents

HELP = "send a pipeline or a component to a workspace of Azure ML, as `run` runs it here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input_arguments(parser)
    parser.add_argument("--compute", metavar="NAME", help="the cluster of all steps that name none, or serverless")
    size = "the VM size of a step on serverless compute; without STEP= of all that name none"
    add_repeated(parser, "--instance-type", "[STEP=]SIZE", size)
    who = "managed, user or amltoken: as whom a step reaches data; without STEP= the whole job"
    add_repeated(parser, "--identity", "[STEP=]WHO", who)
    end = "end a step after so many seconds, or 90s, 30m, 2h, 1d; without STEP= each that has no limit"
    add_repeated(parser, "--timeout", "[STEP=]TIME", end)
    parser.add_argument("--experiment", metavar="NAME", help="under what the job is listed in Studio")
    ids = "name the library's components by their ids in the workspace rather than sending them along"
    parser.add_argument("--registered", action="store_true", help=ids)
    parser.add_argument("--registry", metavar="NAME", help="the same, by their ids in this registry")
    add_workspace_arguments(parser)
    parser.add_argument("--watch", action="store_true", help="follow the job to its end; show the log of what fails")
    parser.add_argument("--dry-run", action="store_true", help="check, show what would be sent, and ask Azure nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Check everything here, then send; with ``--watch`` the exit code is that of the job."""
    values = parse_each("", parse_value, args.values)
    args.target = folder_document(args.target)
    scale = parse_each("--scale", parse_scale, args.scale)
    if args.dry_run and args.watch:
        raise UsageError("--dry-run sends nothing that --watch could follow.", "Leave one of them out.")
    from allranks.azure.assemble import assemble_job
    from allranks.azure.placement import parse_placement
    from allranks.azure.registered import ComponentFinder
    from allranks.azure.submit import RegisteredComponents
    from allranks.local.checkout_assets import CheckoutAssets

    asked = parse_placement(args.instance_type, args.identity, args.timeout)
    registered = RegisteredComponents(args.registry) if args.registered or args.registry else None
    checkout = CheckoutAssets.around(target_folder(args.target)) if args.dry_run else None
    known = ComponentFinder(lambda: workspace_of(args), checkout)
    assembled = assemble_job(
        args.target,
        values,
        scale,
        compute=args.compute,
        experiment=args.experiment,
        asked=asked,
        resolve=known.find,
    )
    for note in (*(checkout.lines() if checkout else ()), *assembled.notes):
        print_note(note)
    return _show(args, assembled, registered) if args.dry_run else _submit(args, assembled, registered)


def _submit(args: argparse.Namespace, assembled: AssembledJob, registered: RegisteredComponents | None) -> int:
    from allranks.azure.client import connect_workspace
    from allranks.azure.explain import service_errors
    from allranks.azure.submit import name_job, submit_job
    from allranks.cli.watching import follow_job, outcome_document, outcome_summary
    from allranks.local.result import SUCCEEDED

    workspace = workspace_of(args)
    with service_errors("connecting", workspace):
        client = connect_workspace(workspace)
    if not args.json:
        print(f"sending {assembled.title} to the {workspace}, as {name_job(assembled)}", flush=True)
    job = submit_job(client, workspace, assembled, registered, print_note)
    if not args.json:
        print(f"job {job.name} in the {workspace}\n  Studio  {job.studio}", flush=True)
    outcome = follow_job(client, workspace, job, as_json=args.json) if args.watch else None
    if args.json:
        print_output(outcome_document(job, outcome))
    elif outcome is None:
        print(f"  watch   allranks runs watch {job.name}\n  cancel  allranks runs cancel {job.name}")
    else:
        print(outcome_summary(job, outcome))
    return 0 if outcome is None or outcome.status == SUCCEEDED else 1


def _show(args: argparse.Namespace, assembled: AssembledJob, registered: RegisteredComponents | None) -> int:
    from allranks.azure.outline import submission_outline
    from allranks.azure.submit import name_registered
    from allranks.planning.network_waits import network_waits
    from allranks.spec import check_machines
    from allranks.spec.step_sizes import check_sizes, step_sizes

    pipeline = assembled.pipeline
    found = (*check_machines(pipeline), *check_sizes(pipeline, step_sizes(pipeline)), *network_waits(pipeline))
    for problem in found:
        print_note(problem)
    ids = {} if registered is None else name_registered(assembled, registered)
    document: dict[str, Any] = {"dry_run": True} | submission_outline(pipeline, ids)
    document["experiment"] = assembled.job.experiment_name
    if args.json:
        print_output(document)
        return 0
    print(f"would be sent to compute {document['compute'] or 'of the steps'}, experiment {document['experiment']}")
    lines = [_cells(name, step) for name, step in document["steps"].items()]
    print(aligned_rows([["step", "component", "nodes x ranks", "size", "snapshot", "environment"], *lines]))
    return 0


def _cells(name: str, step: dict[str, Any]) -> list[str]:
    snapshot = f"{step['snapshot'][:12]}, {step['files']} files" if step["snapshot"] else "none is sent"
    ranks = f"{step['nodes']} x {step['processes']}"
    return [name, step["component"], ranks, step["place"], snapshot, step["environment"]]
