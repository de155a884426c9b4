"""The ``allranks`` command: finds the verb, runs it, and turns what a user got wrong into one message.

A verb is the module of this folder that is called like it, and holds what ``Verb`` says. Only the module of the verb
that was asked for is imported, so that a verb pays for nothing that it does not use.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

from allranks.cli.inputs import SCRIPT_ARGUMENTS, TAKES_INPUTS
from allranks.cli.text import name_suggestion, print_output, shown_message
from allranks.errors import AllranksError, StorageError, UnknownNameError, UsageError

VERBS = (
    "list",
    "show",
    "init",
    "run",
    "runs",
    "drill",
    "lint",
    "export",
    "submit",
    "copy",
    "renew",
    "env",
    "register",
    "doctor",
    "completion",
    "version",
)
"""Every verb, in the order in which help lists them."""

_LINUX_ONLY = ("run", "drill", "doctor", "env")
_EXIT_INTERRUPTED = 128 + 2  # what a shell reports for SIGINT
_EXIT_PIPE_CLOSED = 128 + 13  # and for SIGPIPE

_REFUSED = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EIO", "EACCES", "EPERM", "ENAMETOOLONG", "EMFILE", "ENFILE")
}
"""What a machine refuses to any program: no fault of ours, so no traceback. Any other OSError is one."""


_REMOVED = {
    "--raise": "make bump PART=patch",
    "--locks": "make locks",
    "--upgrade": "make locks ARGS=--upgrade",
    "--advisories": "make audit",
    "--advisories-from": "make audit",
    "--pipelines": "make renew",
}
"""Options that are removed, and the command in a checkout that takes their place."""


@runtime_checkable
class Verb(Protocol):
    """What the module of a verb holds, under the same names in each."""

    HELP: str
    """One sentence for the list of verbs and for the verb's own help."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declare the arguments."""

    def run(self, args: argparse.Namespace, /) -> int:
        """Do what was asked for; returns the exit code."""


def load_verb(name: str) -> Verb:
    """Import the module of a verb."""
    return cast("Verb", importlib.import_module(f"allranks.cli.{name}"))


def verb_parser(name: str) -> VerbParser:
    """The parser of a verb, which has its arguments."""
    module = load_verb(name)
    parser = VerbParser(prog=f"allranks {name}", description=module.HELP)
    module.add_arguments(parser)
    return parser


class VerbParser(argparse.ArgumentParser):
    """An argument parser that reports through our errors and takes no abbreviated options."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)
        self.commands: dict[str, VerbParser] = {}

    def add_subparsers(self, **keywords: Any) -> Any:
        """Remember that there are commands below: argparse cannot intermix their arguments with options."""
        added = super().add_subparsers(**keywords)
        self.commands = added.choices
        return added

    @property
    def option_actions(self) -> dict[str, argparse.Action]:
        """What each option does, by the option as it is typed."""
        return self._option_string_actions

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments of a verb; for an unknown option the nearest is offered. Raises UsageError."""
        rest: Sequence[str] = ()
        if self.get_default(SCRIPT_ARGUMENTS) is not None and "--" in arguments:
            end = arguments.index("--")
            arguments, rest = arguments[:end], arguments[end + 1 :]
        _require_text(arguments)
        # Intermixed: `run NAME --scale train=2x2 epochs=3` has an option between its positional arguments.
        parse = self.parse_known_args if self.commands else self.parse_known_intermixed_args
        args, unknown = parse(arguments)
        if rest:
            setattr(args, SCRIPT_ARGUMENTS, tuple(rest))
        if not unknown:
            return args
        message, hint = f"unrecognized arguments: {' '.join(unknown)}", f"See `{self.prog} --help`."
        option = unknown[0].partition("=")[0]
        if not option.startswith("-"):
            raise UsageError(f"{message}.", hint)
        if option in _REMOVED and self.prog in ("allranks version", "allranks renew"):
            instead = f"In a checkout: `{_REMOVED[option]}`."
            raise UsageError(f"{option} is removed: a tool of the checkout does this now.", instead)
        if self.get_default(TAKES_INPUTS):
            from allranks.cli.target import unknown_option

            message, how = unknown_option(option, arguments, self._options(), message)
            raise UsageError(message, f"{how} {hint}".strip())
        raise UsageError(f"{message}{name_suggestion(option, self._options())}.", hint)

    def error(self, message: str) -> NoReturn:
        """Report what argparse finds missing or malformed."""
        raise UsageError(f"{message}.", f"See `{self.prog} --help`.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command here, where its name is known; argparse has only a text about it."""
        if action.choices is self.commands and value not in self.commands:
            message = f"{value!r} is no command of `{self.prog}`{name_suggestion(value, self.commands)}."
            raise UsageError(message, f"See `{self.prog} --help`. Commands: {', '.join(self.commands)}.")
        super()._check_value(action, value)

    def _options(self) -> list[str]:
        """The options of this parser and of the commands below it."""
        below = (option for command in self.commands.values() for option in command._options())  # noqa: SLF001 our own
        return [*self._option_string_actions, *below]


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse what is empty: as a path it would be this folder, and as a compute the one that is paid for by default.

    What stands behind ``--`` is for a script.
    """
    for before, argument in pairwise(["", *takewhile(lambda argument: argument != "--", arguments)]):
        option = before if before.startswith("--") else "an argument"
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            what = argument.removesuffix("=") or option
            raise UsageError(f"{what} is empty.", "Leave it out, or set the variable of the shell that it comes from.")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 success, 1 a step failed, 2 what was asked for is wrong."""
    arguments = sys.argv[1:] if argv is None else argv
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if getattr(sys, "stdout", None) is None:  # started with its output closed, as some daemons do
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 for as long as this process lives
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()  # a closed pipe shows here, where it can be handled, rather than at the interpreter's end
    except AllranksError as error:
        _report(error, as_json=as_json)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return _EXIT_PIPE_CLOSED
    except OSError as error:
        if error.errno == errno.ENOENT and not _has_folder():
            gone = StorageError("the current folder has been removed.", "Change to another one.")
            _report(gone, as_json=as_json)
            return gone.exit_code
        if error.errno not in _REFUSED:
            raise
        if not error.filename:  # a write: if that to the output failed, the interpreter's end would try it once more
            _close_output()
        refused = StorageError(f"{error.filename or 'a file or the standard output'}: {error.strerror}.")
        _report(refused, as_json=as_json and bool(error.filename))
        return refused.exit_code
    return code


def _has_folder() -> bool:
    """Return whether the current folder is still there."""
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if arguments[0] == "--version":
        from allranks.library import VERSION

        print(f"allranks {VERSION}")
        return 0
    _check_system(arguments[0])
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        raise _unknown_verb(verb)
    try:
        args = verb_parser(verb).parse(rest)
    except SystemExit as end:  # --help has been printed
        return int(end.code or 0)
    return load_verb(verb).run(args)


def _check_system(verb: str) -> None:
    """Say plainly what does not work where, before an import of what a system lacks says it as a traceback."""
    from allranks.errors import CannotRunHereError

    if sys.platform == "win32":
        message = "allranks does not run on Windows itself: it starts and ends processes as only Linux can."
        raise CannotRunHereError(message, "Use WSL 2 (`wsl --install`), and install allranks there.")
    if sys.platform == "darwin" and verb in _LINUX_ONLY:
        message = f"`allranks {verb}` needs Linux: it starts and ends processes as macOS cannot."
        raise CannotRunHereError(message, "Use a Linux container or machine; list, show, lint and submit work here.")


def _print_help() -> None:
    """List the verbs; only here are all of their modules imported, for the sentence each has about itself."""
    print("usage: allranks VERB ...\n")
    print("Distributed training on Azure ML pipelines, and the same pipelines on one machine.\n")
    for verb in VERBS:
        print(f"  {verb:<12}{load_verb(verb).HELP}")
    print("\n`allranks VERB --help` shows the arguments of a verb, `allranks --version` the version.")


def _unknown_verb(verb: str) -> AllranksError:
    if verb == "cluster":
        hint = "Make a cluster with: az ml compute create --file environments/clusters/dedicated.yaml."
        return UnknownNameError("'cluster' is no verb of allranks.", f"{hint} The sizes are in docs/sizes.md.")
    if verb.startswith("-"):
        return UsageError(f"{verb!r} stands before the verb.", "Options come after it: `allranks list --json`.")
    if Path(verb).is_file():
        return UnknownNameError(f"{verb!r} is a file, and no verb of allranks.", f"To run it: `allranks run {verb}`.")
    return UnknownNameError(
        f"{verb!r} is no verb of allranks{name_suggestion(verb, VERBS)}.", f"Verbs: {', '.join(VERBS)}."
    )


def _report(error: AllranksError, *, as_json: bool) -> None:
    """Print an error for people on standard error, or as the one JSON document on standard output.

    A message repeats the value that is wrong, and that may be an address with a signature.
    """
    message, hint = shown_message(error.message), shown_message(error.hint)
    if as_json:
        print_output({"error": {"kind": error.kind, "message": message, "hint": hint}})
        return
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def _close_output() -> None:
    """Send the rest of the output nowhere: the reader (``head``, ``less``) has gone, which is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
