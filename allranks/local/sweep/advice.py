"""Asks the libraries that choose values, in a process of their own.

They bring numpy, whose threads must not be in the engine: it forks, and runs a function between fork and exec. And the
engine's one thread does not wait while they are imported.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from allranks.errors import CannotRunHereError
from allranks.local import processes

_SCRIPT = Path(__file__).with_name("advisor.py")


class SamplingAdvice:
    """One question at a time to a child process, which is started by the first."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._waiting = False
        self._received = b""

    def ask(self, question: dict[str, Any]) -> Any:
        """The answer, or None while it is not there: then ask again later. An open question is not replaced.

        Raises:
            CannotRunHereError: the child has failed.
        """
        if not self._waiting:
            self._send(question)
        child = self._child
        assert child is not None  # noqa: S101 _send has started it
        assert child.stdout is not None  # noqa: S101 a pipe was asked for
        while not self._received.endswith(b"\n") and select.select([child.stdout], [], [], 0)[0]:
            block = os.read(child.stdout.fileno(), 65536)
            if not block:
                raise CannotRunHereError("the process that chooses the values of the trials has ended; see above.")
            self._received += block
        if not self._received.endswith(b"\n"):
            return None
        answer, self._received, self._waiting = json.loads(self._received), b"", False
        return answer

    def _send(self, question: dict[str, Any]) -> None:
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT)],  # -P: the folder of the script is no place to import from
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 safe here: the engine has one thread
            )
        assert self._child.stdin is not None  # noqa: S101 a pipe was asked for
        self._waiting = True
        with suppress(BrokenPipeError):  # its end of file is found by whoever waits for the answer
            self._child.stdin.write(json.dumps(question).encode() + b"\n")
            self._child.stdin.flush()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with self._child:  # its end closes the pipes and waits
                self._child.kill()
            self._child = None
