"""``allranks drill``: let faults strike a run on purpose, and see whether it comes back and ends as the undisturbed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allranks.cli.build_phases import build_environments, build_images
from allranks.cli.inputs import add_repeated
from allranks.cli.live import print_notes
from allranks.cli.run import add_target_arguments, requested_run
from allranks.cli.text import aligned_rows, print_output
from allranks.drill.drawing import MOST_DRILLS, draw_faults
from allranks.drill.faults import (
    KILL,
    SLOW,
    STOP,
    DrillFault,
    parse_fault,
    parse_full_disk,
    place_fault,
    step_to_strike,
)
from allranks.drill.rehearsal import DrillSetting, check_faults, run_drill, run_undisturbed
from allranks.drill.report import DrillReport, report_rows, write_report
from allranks.errors import UsageError
from allranks.local.folders import RunsHome
from allranks.local.memory_room import refuse_crowded
from allranks.performing import PreparedRun, prepare_run
from allranks.redaction import redact_document
from allranks.wording import duration_words, with_count

HELP = "let faults strike a run on purpose, and see whether it comes back and ends as the undisturbed one"

_NOTICE_SECONDS = 60.0
_LONGEST_NOTICE = 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_target_arguments(parser)
    parser.set_defaults(resume=None, retries=None, containers=None, no_cache=False, keep_checkpoints=False)
    faults = parser.add_argument_group(
        "faults",
        "WHEN: step=40 (of the training), 10s, 50% (of the undisturbed time), checkpoint (after one), save (during "
        "one). Several faults strike one run.",
    )
    who = "[STEP:]rank=N@WHEN, node=N@WHEN"
    others = "launcher=N@WHEN (what has started that node's ranks) or engine@WHEN (what runs it)"
    add_repeated(faults, "--kill", "FAULT", f"SIGKILL: {who} (all of its processes), {others}")
    add_repeated(faults, "--stop", "FAULT", f"SIGSTOP: {who}")
    add_repeated(faults, "--slow", "FAULT", "[STEP:]rank=1:10x[@WHEN]: ten times slower, from then on")
    add_repeated(faults, "--full-disk", "FAULT", "[STEP:]5s@WHEN: for five seconds its ranks can write no large file")
    faults.add_argument(
        "--corrupt", action="store_true", help="flip a bit in the newest checkpoint before a killed step starts again"
    )
    faults.add_argument(
        "--random", metavar="N", type=int, default=0, help="besides these N drawn ones, each in a run of its own"
    )
    faults.add_argument("--seed", metavar="N", type=int, default=0, help="of what is drawn (default: 0)")
    faults.add_argument(
        "--notice-limit",
        metavar="SECONDS",
        type=float,
        default=_NOTICE_SECONDS,
        help=f"after which what was stopped, and nobody has missed, is killed (default: {_NOTICE_SECONDS:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Check everything, run undisturbed, run with the faults, and say what came of each."""
    home = RunsHome(Path(args.runs_dir).resolve())
    if not 1 <= args.notice_limit <= _LONGEST_NOTICE:
        limits = f"not from 1 to {_LONGEST_NOTICE:g} seconds"
        raise UsageError(f"--notice-limit {args.notice_limit:g} is {limits}.", "A minute is the default.")
    if not 0 <= args.random <= MOST_DRILLS:
        raise UsageError(
            f"--random {args.random} is not from 0 to {MOST_DRILLS}.", "For example: --random 20 --seed 1."
        )
    asked = _asked_faults(args)
    request, _ = requested_run(args, home)
    prepared = prepare_run(request, home)
    faults = [place_fault(fault, prepared.plan.steps, request.only) for fault in asked]
    named = {fault.step for fault in faults} or {step_to_strike(prepared.plan.steps, request.only)}
    struck = tuple(name for name in prepared.plan.steps if name in named)
    tell = _silent if args.json else _tell
    _prepare_machine(prepared, home, is_silent=args.json)
    setting = DrillSetting(prepared, home, struck, args.notice_limit, tell)
    report = _drill(setting, faults, args.random, args.seed)
    document = redact_document(report.document())
    write_report(report.folder, document)
    if args.json:
        print_output(document)
    else:
        print("\n".join(_report_lines(document)))
    return 0 if report.is_passed else 1


def _asked_faults(args: argparse.Namespace) -> list[DrillFault]:
    """The faults that the options name; raises UsageError if there are none."""
    kills = [parse_fault(KILL, text) for text in args.kill]
    if args.corrupt and not kills:
        raise UsageError("--corrupt goes with --kill.", "For example: --kill rank=1@checkpoint --corrupt.")
    if args.corrupt:
        kills = [replace(fault, corrupts=True) for fault in kills]
    faults = [*kills, *(parse_fault(STOP, text) for text in args.stop), *(parse_fault(SLOW, t) for t in args.slow)]
    faults += [parse_full_disk(text) for text in args.full_disk]
    if not faults and not args.random:
        raise UsageError("nothing strikes.", "For example: --kill rank=1@50%, --stop node=1@10s, --random 20.")
    return faults


def _prepare_machine(prepared: PreparedRun, home: RunsHome, *, is_silent: bool) -> None:
    """As before any run: environments are built, folders are there, the ranks have room in the memory."""
    refuse_crowded(prepared.plan)
    home.prepare()
    build_environments([one for one in prepared.plan.environments if not one.is_built], target=prepared.request.target)
    build_images(one for one in prepared.plan.images if not one.is_built)
    if not is_silent:
        print_notes(prepared.plan)


def _drill(setting: DrillSetting, faults: Sequence[DrillFault], drawn: int, seed: int) -> DrillReport:
    undisturbed = run_undisturbed(setting)
    for step in undisturbed:
        setting.tell(f"undisturbed: {step.name} takes {duration_words(step.seconds)}, run {step.run_id}")
    check_faults(faults, undisturbed)
    drills = [faults] if faults else []
    drills += [[fault] for fault in draw_faults(drawn, seed, setting.prepared.plan.steps, undisturbed)]
    outcomes = []
    for number, together in enumerate(drills, 1):
        setting.tell(f"drill {number} of {len(drills)}: {', '.join(fault.words for fault in together)}")
        outcomes.append(run_drill(setting, number, together, undisturbed))
        setting.tell(f"  {outcomes[-1].result}")
    folder = setting.home.run(outcomes[-1].run.runs[-1]).path
    return DrillReport(setting.prepared.request.target, folder, undisturbed, outcomes)


def _report_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A report for people."""
    yield aligned_rows([list(row) for row in report_rows(document)], indent="")
    for drill in document["drills"]:
        for said in filter(None, (drill["reason"], drill["note"])):
            yield f"drill {drill['number']}: {said}"
    equal = sum(found["files_equal"] for drill in document["drills"] for found in drill["compared"].values())
    yield f"{with_count(equal, 'file')} equal to the bit; the report: {document['folder']}/drill.html"


def _tell(line: str) -> None:
    print(line, flush=True)


def _silent(line: str) -> None:
    pass
