"""The ``allranks`` command: finds the verb, runs it, and turns what a user got wrong into one message.

A verb is one module with ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(args) -> int``. Only the module of the
verb that was asked for is imported, so that a verb pays for nothing that it does not use.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any, NoReturn

from allranks.errors import AllranksError, UnknownNameError, UsageError

VERBS = {
    "list": "allranks.cli.list",
    "show": "allranks.cli.show",
    "run": "allranks.cli.run",
    "runs": "allranks.cli.runs",
    "lint": "allranks.cli.lint",
    "export": "allranks.cli.export",
    "submit": "allranks.cli.submit",
    "copy": "allranks.cli.copy",
    "env": "allranks.cli.env",
    "register": "allranks.cli.register",
    "cluster": "allranks.cli.cluster",
    "version": "allranks.cli.version",
}
"""Every verb and the module that holds it, in the order in which help lists them."""

EXIT_INTERRUPTED = 128 + 2  # what a shell reports for SIGINT
EXIT_PIPE_CLOSED = 128 + 13  # and for SIGPIPE


class Parser(argparse.ArgumentParser):
    """An argument parser that reports through our errors and takes no abbreviated options."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)
        self.has_commands = False

    def add_subparsers(self, **keywords: Any) -> Any:
        """Remember that there are commands below: argparse cannot intermix their arguments with options."""
        self.has_commands = True
        return super().add_subparsers(**keywords)

    def error(self, message: str) -> NoReturn:
        """Report an argument that is missing, unknown or malformed."""
        raise UsageError(f"{message}.", f"See `{self.prog} --help`.")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 success, 1 a step failed, 2 what was asked for is wrong."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # a closed pipe shows here, where it can be handled, rather than at the interpreter's end
    except AllranksError as error:
        _report(error, as_json="--json" in arguments)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return EXIT_PIPE_CLOSED
    return code


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if arguments[0] == "--version":
        from allranks.library import VERSION

        print(f"allranks {VERSION}")
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        raise _unknown_verb(verb)
    module = importlib.import_module(VERBS[verb])
    parser = Parser(prog=f"allranks {verb}", description=module.HELP)
    module.add_arguments(parser)
    try:
        # Intermixed: `run NAME --scale train=2x2 epochs=3` has an option between its positional arguments.
        args = parser.parse_args(rest) if parser.has_commands else parser.parse_intermixed_args(rest)
    except SystemExit as end:  # --help has been printed
        return int(end.code or 0)
    return int(module.run(args))


def _print_help() -> None:
    """List the verbs; only here are all of their modules imported, for the sentence each has about itself."""
    print("usage: allranks VERB ...\n")
    print("Distributed training on Azure ML pipelines, and the same pipelines on one machine.\n")
    for verb, module in VERBS.items():
        print(f"  {verb:<10}{importlib.import_module(module).HELP}")
    print("\n`allranks VERB --help` shows the arguments of a verb, `allranks --version` the version.")


def _unknown_verb(verb: str) -> AllranksError:
    if verb.startswith("-"):
        return UsageError(f"{verb!r} stands before the verb.", "Options come after it: `allranks list --json`.")
    from allranks.cli.text import nearest

    return UnknownNameError(f"{verb!r} is no verb of allranks{nearest(verb, VERBS)}.", f"Verbs: {', '.join(VERBS)}.")


def _report(error: AllranksError, *, as_json: bool) -> None:
    """Print an error for people on standard error, or as the one JSON document on standard output."""
    if as_json:
        import json

        print(json.dumps({"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}, indent=1))
        return
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


def _close_output() -> None:
    """Send the rest of the output nowhere: the reader (``head``, ``less``) has gone, which is no error."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
