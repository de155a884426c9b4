"""``allranks doctor``: what works on this machine, what is missing, and the command that mends it."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from allranks.cli import text
from allranks.cli.doctor_checks import examine_machine
from allranks.cli.doctor_packages import BROKEN, MISSING, WORKS, Finding
from allranks.local.folders import DEFAULT_HOME
from allranks.redaction import redact_document

HELP = "say what works on this machine, what is missing, and the command that mends it"

_MARKS = {WORKS: "ok", MISSING: "-", BROKEN: "no"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--azure", action="store_true", help="also ask Azure for a token, over the network")
    parser.add_argument("--runs-dir", metavar="DIR", default=DEFAULT_HOME, help=f"default: {DEFAULT_HOME}")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Look at everything; 1 where `allranks run` cannot work."""
    findings = examine_machine(Path(args.runs_dir).resolve(), ask_azure=args.azure)
    works = all(finding.status != BROKEN for finding in findings)
    if args.json:
        checks = {one.name: {"status": one.status, "found": one.found, "mend": one.mend} for one in findings}
        text.print_output(redact_document({"can_run": works, "checks": checks}))
    else:
        print(_page(findings, works=works))
    return 0 if works else 1


def _page(findings: list[Finding], *, works: bool) -> str:
    rows = [(_MARKS[one.status], one.name, one.found) for one in findings]
    lines = text.aligned_rows(rows, keep_whole=True).splitlines()
    for at in reversed(range(len(findings))):
        if findings[at].mend:
            lines.insert(at + 1, f"        {findings[at].mend}")
    missing = Counter(one.status for one in findings)[MISSING]
    can = "`allranks run` works here" if works else "`allranks run` cannot work here: see what says no"
    return "\n".join([*lines, f"{can}; {missing} of {len(findings)} are missing, which only some runs need"])
