"""The engine's side: asks this user's keeper for a rank, where there is one and the rank may be forked at all."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.local.fingerprint import interpreter_digest
from allranks.local.rank_process import ProgramProcess, RankProcess
from allranks.local.warm.address import connect_keeper
from allranks.local.warm.preloads import find_preloads
from allranks.local.warm.programs import PythonProgram, read_python_program

if TYPE_CHECKING:
    from allranks.local.rank_command import RankCommand
    from allranks.local.snapshot import SnapshotFile

_OF_PLACES = frozenset({"TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "PIP_PYTHON"})
_OF_SESSIONS = ("SSH_", "TMUX", "WINDOW", "GNOME_TERMINAL_", "VSCODE_", "XDG_SESSION_", "DBUS_")
"""What differs from one terminal to the next; where imports look at one of these all the same, no rank is forked."""


class WarmRanks:
    """Starts the ranks of a step: forked where that makes no difference and somebody keeps a template for them.

    Args:
        files: of the step's snapshot.
        stable: names of the variables that all runs of the step have in common.
    """

    def __init__(self, files: Sequence[SnapshotFile], stable: frozenset[str]) -> None:
        self._files = files
        self._stable = stable
        self._keeper: socket.socket | None = connect_keeper()
        self._context: Mapping[str, Any] = {}

    def close(self) -> None:
        """Ask no more."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def start(self, command: RankCommand, umask: int, locked: Sequence[bytes]) -> RankProcess:
        """Start a rank; see ``RankStarter``."""
        return self._fork(command, umask, locked) or ProgramProcess(command, umask, locked)

    def question(self, text: str, environ: Mapping[str, str], locked: Sequence[bytes]) -> dict[str, Any] | None:
        """What to ask for a command of the step, as JSON, but for what its starter knows; None for what is not forked.

        Args:
            text: for bash.
            environ: with which bash is started.
            locked: see ``RankStarter``.
        """
        program = read_python_program(text, environ)
        if self._keeper is None or program is None:
            return None
        if not all(map(os.path.isabs, filter(None, environ.get("PYTHONPATH", "").split(os.pathsep)))):
            return None  # it means another folder in each process
        entry = f"{program.target.replace('.', '/')}.py" if program.is_module else program.target.removeprefix("./")
        if not program.is_module and entry not in {file.path for file in self._files}:
            return None  # a folder with a __main__.py, or an archive
        found = find_preloads(entry, self._files)
        if not found.modules:
            return None
        return {
            "spec": {
                "interpreter": str(program.interpreter),
                "flags": program.flags,
                "installed": interpreter_digest(program.interpreter),
                "modules": found.modules,
            },
            "request": {
                "module": program.is_module,
                "target": program.target,
                "arguments": program.arguments,
                "argv": program.argv,
                "beside": sorted(self._beside(program)),
                "locked": [os.fsdecode(path) for path in locked],
                "named": sorted(found.variables),
                "silences": found.may_silence,
            },
            "stable": sorted(name for name in self._stable if _is_stable(name)),
            "context": self._own_context(),
        }

    def _beside(self, program: PythonProgram) -> set[str]:
        """The names of modules that lie beside its script."""
        entry = os.path.dirname(program.target) if not program.is_module else ""  # noqa: PTH120 relative as it is
        return {
            file.path.removeprefix(f"{entry}/").partition("/")[0].removesuffix(".py")
            for file in self._files
            if not entry or file.path.startswith(f"{entry}/")
        }

    def _own_context(self) -> Mapping[str, Any]:
        if not self._context:
            from allranks.local.warm.context import process_context

            self._context = process_context()
        return self._context

    def _fork(self, command: RankCommand, umask: int, locked: Sequence[bytes]) -> RankProcess | None:
        if self._keeper is None or command.argv[:2] != ("/bin/bash", "-c"):
            return None
        question = self.question(command.argv[2], command.environ, locked)
        if question is None:
            return None
        from allranks.local.warm.asking import ask_for_rank, complete_question
        from allranks.local.warm.templates import ForkedRank

        asked = complete_question(question, command.environ, str(command.cwd), umask)
        try:
            with command.log.open("ab", buffering=0) as log:
                rank = ask_for_rank(self._keeper, asked, [log.fileno()])
        except OSError:
            self.close()
            return None
        return None if isinstance(rank, str) else ForkedRank(*rank)


def _is_stable(name: str) -> bool:
    return name not in _OF_PLACES and not name.startswith(_OF_SESSIONS)
