"""The engine's side: asks this user's keeper for a rank, where there is one and the rank may be forked at all."""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.local.fingerprint import interpreter_digest
from allranks.local.rank_process import ProgramProcess, RankProcess
from allranks.local.warm.address import connect_keeper
from allranks.local.warm.context import blocked_signals, ignored_signals, limited_resources
from allranks.local.warm.preloads import find_preloads
from allranks.local.warm.programs import PythonProgram, read_python_program, shell_variables

if TYPE_CHECKING:
    from allranks.local.rank_command import RankCommand
    from allranks.local.snapshot import SnapshotFile

_PATIENCE = 5.0  # seconds for a keeper that has not answered: it may have been stopped
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
        self._keeper = connect_keeper()
        self._context: Mapping[str, Any] = {}

    def close(self) -> None:
        """Ask no more."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def start(self, command: RankCommand, umask: int, locked: Sequence[bytes]) -> RankProcess:
        """Start a rank; see ``RankStarter``."""
        return self._fork(command, umask, locked) or ProgramProcess(command, umask, locked)

    def _fork(self, command: RankCommand, umask: int, locked: Sequence[bytes]) -> RankProcess | None:
        if self._keeper is None or command.argv[:2] != ("/bin/bash", "-c"):
            return None
        program = read_python_program(command.argv[2], command.environ)
        if program is None:
            return None
        if not all(map(os.path.isabs, filter(None, command.environ.get("PYTHONPATH", "").split(os.pathsep)))):
            return None  # it means another folder in each process
        entry = f"{program.target.replace('.', '/')}.py" if program.is_module else program.target.removeprefix("./")
        if not program.is_module and entry not in {file.path for file in self._files}:
            return None  # a folder with a __main__.py, or an archive
        found = find_preloads(entry, self._files)
        if not found.modules:
            return None
        variables = shell_variables(command.environ, program.interpreter)
        spec = {
            "interpreter": str(program.interpreter),
            "flags": program.flags,
            "installed": interpreter_digest(program.interpreter),
            "variables": {name: value for name, value in variables.items() if self._is_stable(name)},
            "modules": found.modules,
        }
        request = self._request(command, program, variables, umask, locked)
        request |= {"named": sorted(found.variables), "silences": found.may_silence}
        return self._ask({"do": "fork", "spec": spec, "request": request, "context": self._own_context()}, command)

    def _is_stable(self, name: str) -> bool:
        return name in self._stable and name not in _OF_PLACES and not name.startswith(_OF_SESSIONS)

    def _request(
        self,
        command: RankCommand,
        program: PythonProgram,
        variables: Mapping[str, str],
        umask: int,
        locked: Sequence[bytes],
    ) -> dict[str, Any]:
        entry = os.path.dirname(program.target) if not program.is_module else ""  # noqa: PTH120 relative as it is
        beside = {
            file.path.removeprefix(f"{entry}/").partition("/")[0].removesuffix(".py")
            for file in self._files
            if not entry or file.path.startswith(f"{entry}/")
        }
        return {
            "env": variables,
            "cwd": str(command.cwd),
            "module": program.is_module,
            "target": program.target,
            "arguments": program.arguments,
            "argv": program.argv,
            "beside": sorted(beside),
            "umask": umask,
            "ignored": ignored_signals(),
            "blocked": blocked_signals(),
            "locked": [os.fsdecode(path) for path in locked],
            "cores": sorted(os.sched_getaffinity(0)),
            "limits": [[one, resource.getrlimit(one)] for one in limited_resources()],
        }

    def _own_context(self) -> Mapping[str, Any]:
        if not self._context:
            from allranks.local.warm.context import process_context

            self._context = process_context()
        return self._context

    def _ask(self, asked: Mapping[str, Any], command: RankCommand) -> RankProcess | None:
        from allranks.local.warm.templates import receive_rank

        assert self._keeper is not None  # noqa: S101 _fork has looked
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        message = json.dumps(asked).encode()
        self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, max(1 << 18, 2 * len(message)))
        with command.log.open("ab", buffering=0) as log, theirs:
            try:
                socket.send_fds(self._keeper, [message], [log.fileno(), theirs.fileno()])
            except OSError:
                self.close()
                report.close()
                return None
        rank = receive_rank(report, _PATIENCE)
        if isinstance(rank, str):
            if rank == "timed out":
                self.close()
            return None
        return rank
