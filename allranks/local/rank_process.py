"""The process of a rank."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import partial

from allranks.local import processes
from allranks.local.rank_command import RankCommand
from allranks.local.read_only import lock_inputs
from allranks.local.resources.usage import ProcessEnd, reap_process


class RankProcess:
    """A running rank, the leader of a session; ``descriptor`` is a pidfd of it, readable when it has ended.

    It is started with a umask and the inputs that it cannot write to; raises OSError or ValueError.
    """

    def __init__(self, command: RankCommand, umask: int, locked: Sequence[bytes]) -> None:
        with command.log.open("ab", buffering=0) as log:
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=command.cwd,
                env=dict(command.environ),
                start_new_session=True,
                umask=umask,
                preexec_fn=partial(_prepare, os.getpid(), locked),  # noqa: PLW1509 safe here: the engine has one thread
            )
        self.pid = self._process.pid
        self.descriptor = os.pidfd_open(self.pid)

    def reap(self) -> tuple[int, ProcessEnd | None]:
        """End what it has left in its group. Return its exit code, negative for a signal, and what it has used."""
        os.close(self.descriptor)
        processes.kill_group(self.pid)  # before the wait, while the id cannot be anybody else's
        used = reap_process(self._process)
        return self._process.returncode, used


def _prepare(parent: int, locked: Sequence[bytes]) -> None:
    """Run in each process before its program."""
    processes.die_with(parent)
    lock_inputs(locked)
