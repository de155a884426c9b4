"""The entry point of the command line."""

from __future__ import annotations

from allranks.files import open_missing_streams


def main() -> int:
    """Run the command line, and return its exit code."""
    open_missing_streams()
    from allranks.cli.main import main as run

    return run()
