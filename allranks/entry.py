"""The entry point of the command line."""

from __future__ import annotations

import os

from allranks.files import open_missing_streams

owns_process = False
"""Whether this process is the command line and nothing else: then every child that it adopts is one of its run."""


def main() -> int:
    """Run the command line, and return its exit code."""
    global owns_process  # noqa: PLW0603 set once, before anything is imported that reads it
    owns_process = True
    open_missing_streams()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for the words that complete a line
        from allranks.cli.completers import complete_line

        complete_line()
    from allranks.cli.main import main as run

    return run()
