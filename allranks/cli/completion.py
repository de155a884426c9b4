"""``allranks completion bash``: what a shell reads to complete commands, options, names, inputs, runs and steps."""

from __future__ import annotations

import argparse

HELP = "print what bash, zsh or fish needs to complete the arguments of allranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell that reads what is printed")


def run(args: argparse.Namespace) -> int:
    """Print argcomplete's script for a shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["allranks"], shell=args.shell))
    return 0
