"""``allranks drill``: let a fault strike a run, and see whether it comes back and ends as the undisturbed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from allranks.cli.build_phases import build_environments, build_images
from allranks.cli.inputs import add_repeated
from allranks.cli.live import print_notes
from allranks.cli.run import add_target_arguments, requested_run
from allranks.cli.text import aligned_rows, print_output
from allranks.drill.faults import KILL, STOP, parse_fault, place_fault
from allranks.drill.rehearsal import Rehearsal
from allranks.errors import UsageError
from allranks.local.folders import RunsHome, write_json_file
from allranks.local.memory_room import refuse_crowded
from allranks.performing import prepare_run
from allranks.redaction import redact_document
from allranks.wording import with_count

HELP = "let a fault strike a run on purpose, and see whether it comes back and ends as the undisturbed one"

_REMOVED = ("--slow", "--full-disk", "--corrupt", "--random", "--seed", "--notice-limit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_target_arguments(parser)
    parser.set_defaults(resume=None, retries=None, containers=None, no_cache=False, keep_checkpoints=False)
    when = "WHEN: step=40 (of the training), 10s, 50% (of the undisturbed time). One fault strikes one run."
    faults = parser.add_argument_group("faults", when)
    who = "[STEP:]rank=N@WHEN, node=N@WHEN"
    add_repeated(faults, "--kill", "FAULT", f"SIGKILL: {who} (all of its processes), or engine@WHEN (what runs it)")
    add_repeated(faults, "--stop", "FAULT", f"SIGSTOP: {who}")
    parser.add_argument(*_REMOVED, type=_refuse_removed, nargs="?", const="", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Check everything, run undisturbed, run with the fault, and say what came of it."""
    home = RunsHome(Path(args.runs_dir).resolve())
    asked = [*(parse_fault(KILL, text) for text in args.kill), *(parse_fault(STOP, text) for text in args.stop)]
    if len(asked) != 1:
        what = f"{len(asked)} faults would strike one run" if asked else "nothing strikes"
        raise UsageError(f"{what}: a drill has one fault.", "For example: --kill rank=1@50%, or --stop node=1@10s.")
    request, _ = requested_run(args, home)
    prepared = prepare_run(request, home)
    fault = place_fault(asked[0], prepared.plan.steps, request.only)
    refuse_crowded(prepared.plan)
    home.prepare()
    build_environments([one for one in prepared.plan.environments if not one.is_built], target=request.target)
    build_images(one for one in prepared.plan.images if not one.is_built)
    if not args.json:
        print_notes(prepared.plan)
    rehearsal = Rehearsal(prepared, home, fault, (lambda _: None) if args.json else print)
    undisturbed = rehearsal.run_undisturbed()
    rehearsal.tell(f"undisturbed: {fault.step} takes {undisturbed.seconds:.1f} s, run {undisturbed.run_id}")
    rehearsal.check(undisturbed)
    rehearsal.tell(f"drill: {fault.action} {fault}")
    document = redact_document(rehearsal.run_drill(undisturbed))
    write_json_file(Path(document["folder"]) / "drill.json", document)
    print_output(document if args.json else "\n".join(_report_lines(document)))
    return 0 if document["passed"] else 1


def _refuse_removed(_: str) -> str:
    raise UsageError(
        f"{', '.join(_REMOVED)} are no options any more: a drill kills or stops a rank, a node or the engine once.",
        "Use --kill or --stop, for example: --kill rank=1@50%.",
    )


def _report_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A report for people: a table of one row, what is to be said of it, and where the document is."""
    (drill,) = document["drills"]
    (fault,) = drill["faults"]
    struck, noticed, lost = fault["struck_after_seconds"], fault["noticed_after_seconds"], drill["seconds_lost"]
    step = "" if fault["struck_at_step"] is None else f"step {fault['struck_at_step']}, "
    cells = {
        "fault": f"{fault['action']} {fault['fault']}",
        "struck at": "-" if struck is None else f"{step}{struck:.1f} s",
        "noticed after": "" if noticed is None else f"{'' if fault['noticed'] else 'not within '}{noticed:.2f} s",
        "steps repeated": "" if fault["steps_repeated"] is None else str(fault["steps_repeated"]),
        "time lost": "" if lost is None else f"{lost:.1f} s",
        "result": drill["result"],
    }
    yield aligned_rows([list(cells), list(cells.values())], indent="")
    yield from filter(None, (drill["reason"], drill["note"]))
    equal = sum(found["files_equal"] for found in drill["compared"].values())
    yield f"{with_count(equal, 'file')} equal to the bit; the report: {document['folder']}/drill.json"
