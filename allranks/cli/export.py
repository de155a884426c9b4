"""``allranks export``: a Python pipeline as the YAML that the CLI of Azure ML takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks import catalogue
from allranks.cli.text import print_output
from allranks.errors import StorageError, UsageError
from allranks.files import write_text

HELP = "write a Python pipeline as YAML, for `az ml job create --file`"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("target", metavar="TARGET", help="FILE.py:FUNCTION, a function with the SDK's @pipeline")
    parser.add_argument("-o", "--output", metavar="FILE", help="the YAML to write (default: FILE.yaml beside FILE.py)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write the YAML and say where."""
    if ".py:" not in args.target:
        known = catalogue.resolve(args.target)
        hint = f"It is YAML already: {known}." if known else "Write FILE.py:FUNCTION."
        raise UsageError(f"{args.target!r} does not name a Python pipeline.", hint)
    output = Path(args.output) if args.output else Path(args.target.rpartition(":")[0]).with_suffix(".yaml")
    files = _write_export(args.target, output)
    if args.json:
        print_output({"target": args.target, "files": [str(file) for file in files]})
    else:
        print(f"wrote {', '.join(map(str, files))}\nSend it with: az ml job create --file {output}")
    return 0


def _write_export(target: str, output: Path) -> list[Path]:
    """Export a pipeline to a file, and pipelines nested in it to files beside it; returns what was written."""
    from allranks.azure.export import export_pipeline

    files = export_pipeline(target, output)
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
    except OSError as error:
        raise StorageError(f"Cannot write {error.filename}: {error.strerror}.") from error
    return list(files)
