"""``allranks list``: what the library holds."""

from __future__ import annotations

import argparse
import textwrap

from allranks import catalogue
from allranks.cli import text

HELP = "list the components, pipelines and environments of the library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print names, display names, distributions and the first sentence of each description."""
    entries = catalogue.catalogue_entries()
    if args.json:
        text.print_output(_document(entries))
        return 0
    aligned = dict(zip(entries, _lines(entries), strict=True))
    for kind in ("component", "pipeline", "environment"):
        print(f"{kind}s")
        print("\n".join(aligned[e] for e in entries if e.kind == kind) or "  none")
    print("\n`allranks show NAME` shows the inputs and outputs, `allranks run NAME` runs it here.")
    return 0


def _lines(entries: list[catalogue.CatalogueEntry]) -> list[str]:
    """A line for each entry; on a terminal that is too narrow for all of them the descriptions stand below."""
    rows = [[e.name, e.distribution, e.display_name, e.description] for e in entries]
    whole = text.aligned_rows(rows, keep_whole=True).splitlines()
    edge = text.terminal_width()
    if edge is None or max(map(len, whole)) <= edge:
        return whole
    heads = text.aligned_rows([row[:-1] for row in rows]).splitlines()
    fill = textwrap.TextWrapper(max(edge, 30), initial_indent=" " * 6, subsequent_indent=" " * 6).fill
    return [f"{head}\n{fill(row[-1])}".rstrip() for head, row in zip(heads, rows, strict=True)]


def _document(entries: list[catalogue.CatalogueEntry]) -> dict[str, list[dict[str, str]]]:
    """``{"components": [...], "pipelines": [...], "environments": [...]}``, each entry's fields as text."""
    return {
        f"{kind}s": [
            {key: str(value) for key, value in e._asdict().items() if key != "kind"} for e in entries if e.kind == kind
        ]
        for kind in ("component", "pipeline", "environment")
    }
