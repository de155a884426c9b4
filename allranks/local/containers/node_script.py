"""What a node's container runs: one script of bash that starts the ranks of the node, each with its log.

It is process 1 of the container: when it ends, the kernel ends all others. It ends with the first rank that fails, and
each rank leaves a note of how it ended, since the client tells of the container only. bash collects orphans as an init
would; ``--init`` is not asked for because podman often lacks the program for it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.local.gang import RankExit
from allranks.local.rank_command import RankCommand

# SIGUSR1 asks for stacks: the ranks write them, and the container waits for the engine to end it. A shell that has a
# command in front keeps the signal's default for it by a trap of its own. A rank that fails says so by SIGUSR2, since
# `wait -n` is not in every bash, and may miss what has ended before it was called.
_SCRIPT = """#!/bin/bash
umask {umask:04o}
trap 'trap : USR1; kill -USR1 0; wait; exit 138' USR1
trap 'exit 143' TERM
trap 'exit 1' USR2
rank() {{
    trap : USR1
    trap - TERM USR2
    . "$1/$2.sh" >> "$3" 2>&1
    code=$?
    echo "$code" > "$1/$2.exit"
    [ $code = 0 ] || kill -USR2 $$
    exit $code
}}
{ranks}
for pid in $(jobs -p); do
    wait "$pid" || exit
done
"""
_LINE = 60_000  # bytes; docker's reader of such files refuses lines of 64 KiB
_SHELL_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The ranks that one container runs: those of a node, or its parameter servers, in order.

    ``folder`` holds what it is started with and the notes.
    """

    commands: Sequence[RankCommand]
    folder: Path

    @property
    def first(self) -> RankCommand:
        """The rank whose node and variables stand for those of all."""
        return self.commands[0]

    @property
    def env_file(self) -> Path:
        """The variables of the container, for ``--env-file``."""
        return self.folder / "variables.env"

    @property
    def script(self) -> Path:
        """What the container runs."""
        return self.folder / "node.sh"

    def write(self, changed: Mapping[str, str], umask: int) -> None:
        """Write all of it, with these variables in place of those of the same name.

        Raises:
            OSError: a value of several lines has a name that no shell can set.
        """
        self.folder.mkdir(parents=True)
        environs = [{**command.environ, **changed} for command in self.commands]
        common = {
            name: value
            for name, value in environs[0].items()
            if name != "PWD" and _fits_a_line(value) and all(other.get(name) == value for other in environs)
        }
        self.env_file.write_text("".join(f"{name}={value}\n" for name, value in common.items()), encoding="utf-8")
        ranks = []
        for index, (command, environ) in enumerate(zip(self.commands, environs, strict=True)):
            lines = [_export(name, value) for name, value in environ.items() if name not in common]
            lines += [f"cd {shlex.quote(str(command.cwd))}", shlex.join(command.argv)]
            (self.folder / f"{index}.sh").write_text("\n".join(lines) + "\n", encoding="utf-8")
            ranks.append(shlex.join(["rank", str(self.folder), str(index), str(command.log)]) + " &")
        self.script.write_text(_SCRIPT.format(umask=umask, ranks="\n".join(ranks)), encoding="utf-8")

    def failed_exits(self) -> list[RankExit]:
        """How its ranks have failed, as their notes tell."""
        exits = []
        for index, command in enumerate(self.commands):
            note = self.folder / f"{index}.exit"
            text = note.read_text().strip() if note.is_file() else ""
            if text not in {"", "0"}:
                exits.append(RankExit(command, int(text), note.stat().st_mtime))
        return exits


def _fits_a_line(value: str) -> bool:
    return not {"\n", "\r"} & set(value) and len(value.encode()) < _LINE


def _export(name: str, value: str) -> str:
    if not _SHELL_NAME.fullmatch(name):
        raise OSError(f"the variable {name!r} has a value of several lines, which a container cannot be given")
    return f"export {name}={shlex.quote(value)}"
