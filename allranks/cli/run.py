"""``allranks run``: run a pipeline or a component on this machine, as Azure ML would."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from allranks import entry
from allranks.cli.inputs import (
    SCRIPT_ARGUMENTS,
    TARGET_CHOICES,
    add_input_arguments,
    add_repeated,
    parse_each,
    parse_scale,
    parse_value,
)
from allranks.cli.live import perform_shown, print_notes
from allranks.cli.log_choice import ALL_LOGS, parse_logs
from allranks.cli.shown_run import OUTPUT, RunDisplay
from allranks.cli.target import folder_document
from allranks.cli.text import print_output
from allranks.errors import UsageError
from allranks.local import processes
from allranks.local.dry import dry_run
from allranks.local.folders import DEFAULT_HOME, RunsHome
from allranks.local.page.document import ended_document
from allranks.local.plan import RunPlan
from allranks.performing import (
    EarlierRun,
    absolute_mapping,
    chosen_interpreter,
    chosen_step_environment,
    earlier_run,
    prepare_run,
)
from allranks.redaction import redact_document
from allranks.request import ANY_CLIENT, CLIENTS, RunRequest, ScriptRequest, is_script

HELP = "run a pipeline, a component or a script of yours on this machine, as Azure ML would"


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what says what is run, and in what."""
    add_input_arguments(parser, may_lack_target=True)
    script = parser.add_argument_group(
        "a script", "TARGET train.py or train.ipynb, or one of these; ARGUMENTS after --"
    )
    script.add_argument("-m", dest="module", metavar="MODULE", help="a module, as for python -m")
    script.add_argument("--command", metavar="COMMAND", help="a command for bash, in a copy of this folder")
    launch = "pytorch, mpi, tensorflow or none, in place of what is recognised"
    script.add_argument("--distribution", metavar="KIND", default="", help=launch)
    copied = "the folder that each node gets a copy of (default: the script's own, or else this one)"
    script.add_argument("--code", metavar="DIR", default="", help=copied)
    parser.set_defaults(**{SCRIPT_ARGUMENTS: ()})
    parser.add_argument("--steps", metavar="STEP,…", default="", help="only these steps and those that they need")
    stands = "what stands for data or a component in the cloud, such as azureml:mnist=./mnist"
    add_repeated(parser, "--map", "REFERENCE=PATH", stands)
    python = "the interpreter that runs a step, in place of the one that its environment calls for"
    add_repeated(parser, "--python", "STEP=PATH", python)
    environment = (
        "the environment that a step (or *) runs in: one of ours, one of Azure's that is known, or a YAML file"
    )
    add_repeated(parser, "--environment", "STEP=NAME_OR_FILE", environment)
    parser.add_argument("--runs-dir", metavar="DIR", default=DEFAULT_HOME, help=f"default: {DEFAULT_HOME}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_target_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would run, and run nothing")
    parser.add_argument("--no-cache", action="store_true", help="run every step, from its beginning")
    parser.add_argument("--resume", metavar="RUN", help="start a run again as it was; its finished steps are reused")
    kept = "with --resume: a step that has changed since starts from what it saved then, a script with what it wrote"
    parser.add_argument("--keep-checkpoints", action="store_true", help=kept)
    retries = (
        "further attempts for a step that fails, whatever the reason (default: those that a checkpoint makes sure of)"
    )
    parser.add_argument("--retries", metavar="N", type=int, help=retries)
    parser.add_argument(
        "--containers",
        nargs="?",
        const=ANY_CLIENT,
        metavar="docker|podman",
        help="each emulated node is a container of the step's image",
    )
    shown = "show what ranks print while they run: all, none, or STEP or STEP:RANK, several joined by commas"
    parser.add_argument(
        "--logs",
        nargs="?",
        const=ALL_LOGS,
        action="append",
        metavar="STEP[:RANK],…",
        help=f"{shown} (default: none on a terminal, all into a pipe)",
    )
    parser.add_argument(
        "--events",
        nargs="?",
        const=OUTPUT,
        metavar="FILE",
        help="write what happens as JSON lines, to the standard output if no file is named",
    )


def run(args: argparse.Namespace) -> int:
    """Check everything, run the plan, say what became of it."""
    home = RunsHome(Path(args.runs_dir).resolve())
    _sort_out_target(args)
    request, earlier = requested_run(args, home)
    prepared = prepare_run(request, home, earlier=earlier)
    display = _display(args, prepared.plan)
    if args.dry_run:
        document = dry_run(prepared.plan, prepared.options(home)) | {"assets": dict(prepared.assets)}
        if args.json:
            print_output(document)
        else:
            _print_dry_run(document, prepared.plan)
        return 0
    if entry.owns_process:
        processes.claim_orphans()
    if prepared.request.script is None:
        result = perform_shown(prepared, home, as_json=args.json, display=display)
        written = {}
    else:
        from allranks.cli.script_run import perform_script, written_files

        result = perform_script(prepared, home, display, as_json=args.json)
        written = {"written": written_files(result)}
    if args.json:
        document = ended_document(home.run(result.run_id), result.document())
        print_output(redact_document(document | written))
    return result.exit_code


def _sort_out_target(args: argparse.Namespace) -> None:
    """Of ``run --containers TARGET NAME=VALUE`` and ``run --logs TARGET`` argparse takes the target for a value."""
    if args.target is not None and "=" not in args.target:
        return
    taken = None
    if args.containers not in (None, ANY_CLIENT, *CLIENTS):
        taken, args.containers = args.containers, ANY_CLIENT
    elif args.logs and args.logs[-1] != ALL_LOGS and (not args.resume or "=" in args.logs[-1]):
        taken, args.logs[-1] = args.logs[-1], ALL_LOGS
    elif args.events not in (None, OUTPUT) and (not args.resume or "=" in args.events):
        taken, args.events = args.events, OUTPUT
    if taken is not None:
        args.values[:0] = [] if args.target is None else [args.target]
        args.target = taken


def _display(args: argparse.Namespace, plan: RunPlan) -> RunDisplay:
    """What is shown of the run while it goes on."""
    if args.json and args.events == OUTPUT:
        raise UsageError("--json and --events both want the standard output.", "Name a file: --events FILE.")
    logs = None if args.logs is None else parse_logs(args.logs, plan)
    return RunDisplay(logs, args.events)


def requested_run(args: argparse.Namespace, home: RunsHome) -> tuple[RunRequest, EarlierRun | None]:
    """What was asked for, and the run that is resumed; raises UsageError for what does not go together."""
    if args.target is not None and "=" in args.target and not Path(args.target).exists():
        args.values.insert(0, args.target)
        args.target = None
    if args.retries is not None and args.retries < 0:
        raise UsageError(f"--retries {args.retries} is less than 0.")
    given = {
        "values": parse_each("", parse_value, args.values),
        "scale": parse_each("--scale", parse_scale, args.scale),
        "only": tuple(name for name in args.steps.split(",") if name),
        "map": tuple(map(absolute_mapping, args.map)),
        "python": dict(chosen_interpreter(text) for text in args.python),
        "environment": dict(chosen_step_environment(text) for text in args.environment),
        "containers": args.containers,
        "retries": args.retries,
        "cache": False if args.no_cache else None,
        "keep_checkpoints": args.keep_checkpoints,
    }
    if args.resume:
        return _resumed(args, home, given)
    known = {name: value for name, value in given.items() if value is not None}
    script = _script(args)
    if script is not None:
        return RunRequest(script.name, str(Path.cwd()), script=script, **known), None
    if args.target is None:
        raise UsageError("nothing to run: TARGET is missing.", f"Give {TARGET_CHOICES}.")
    return RunRequest(folder_document(args.target), str(Path.cwd()), **known), None


def _script(args: argparse.Namespace) -> ScriptRequest | None:
    """The script that is to run; None for another target. Raises UsageError for what does not go together."""
    target = args.target or ""
    is_path = is_script(target)
    forms = [*([target] if is_path else []), *(["-m"] if args.module else []), *(["--command"] if args.command else [])]
    if not forms:
        options = [f"--{name}" for name in ("distribution", "code") if getattr(args, name)]
        options += ["what stands after --"] if args.arguments else []
        if options:
            what = f"{', '.join(options)}: only a script takes this"
            raise UsageError(f"{what}.", "A script is TARGET.py, TARGET.ipynb, -m MODULE or --command COMMAND.")
        return None
    if len(forms) > 1 or (target and not is_path):
        raise UsageError(
            f"{' and '.join([*forms, *([] if is_path else [target])])}: one thing is run.", "Leave one out."
        )
    return ScriptRequest(
        target if is_path else "", args.module or "", args.command or "", args.arguments, args.distribution, args.code
    )


def _resumed(args: argparse.Namespace, home: RunsHome, given: dict[str, Any]) -> tuple[RunRequest, EarlierRun]:
    """The request of the run that ``--resume`` names, with what was given again."""
    earlier = earlier_run(home, args.resume)
    before = earlier.request
    module = f"-m {args.module}" if args.module else ""
    for name in filter(None, (folder_document(args.target or ""), module, args.command)):
        if name not in (before.target, before.located):
            message = f"--resume {args.resume} was a run of {before.target!r}, not of {name!r}."
            raise UsageError(message, "Leave one of the two out.")
    script = ScriptRequest(arguments=args.arguments, distribution=args.distribution, code=args.code)
    return before.resumed(earlier.folder.id, {**given, "script": script}), earlier


def _print_dry_run(document: dict[str, Any], plan: RunPlan) -> None:
    print_notes(plan)
    for name, step in document["steps"].items():
        when = "".join(f" if {one} is {str(wanted).lower()}" for one, wanted in step.get("when", {}).items())
        reuse = "would be reused" if step["reused"] else "would run"
        if "command" not in step:
            print(f"{name}: would decide{when} by {', '.join(step['inputs'].values())}")
            continue
        reuse += when
        print(f"{name}: {step['nodes']} x {step['processes']}, {reuse}, snapshot {step['snapshot'][:12]}")
        print("  " + step["command"].strip().replace("\n", "\n  "))
