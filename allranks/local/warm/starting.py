"""Starts this user's keeper, asks it what it has, and ends it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from allranks.errors import CannotRunHereError
from allranks.local.warm.address import connect_keeper, keeper_socket, peer_of

_ROOT = Path(__file__).resolve().parents[3]
_CHILD = (  # behind the standard library, and without the working folder, whose selectors.py is somebody's own
    "import sys; sys.path.insert(3, sys.argv.pop(1))\n"
    "from allranks.local.warm.keeper import main; sys.exit(main(sys.argv[1:]))"
)
_START_SECONDS = 20.0
_ANSWER_SECONDS = 5.0


def start_keeper(idle_seconds: float, memory_bytes: int) -> None:
    """Start a keeper beside this process, which goes on when this one ends.

    Raises:
        CannotRunHereError: it cannot listen.
    """
    reader, writer = os.pipe()
    arguments = [str(idle_seconds), str(memory_bytes), str(writer)]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, str(_ROOT), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[writer],
        start_new_session=True,
    ) as process:
        os.close(writer)
        is_told = bool(select.select([reader], [], [], _START_SECONDS)[0])
        os.close(reader)
        if is_told and connect_keeper() is not None:
            process.stderr = None  # it is a session of its own: nobody waits for it
            process.returncode = 0
            return
        process.kill()
        said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
    raise CannotRunHereError(
        f"nothing answers at {keeper_socket()}: {said.rpartition(chr(10))[2] or 'it has ended'}",
        "Set XDG_RUNTIME_DIR to a folder of yours with a short path.",
    )


def keeper_state(do: str = "show") -> dict[str, Any] | None:
    """What the keeper has; None where there is none. With ``stop`` it ends, and so does all that it has.

    Raises:
        CannotRunHereError: it does not answer, since it was stopped.
    """
    connection = connect_keeper()
    if connection is None:
        return None
    with connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.send(json.dumps({"do": do}).encode())
            answer = connection.recv(1 << 20)
        except OSError as error:
            pid, _ = peer_of(connection)
            message = f"the keeper (process {pid}) does not answer: {error}."
            raise CannotRunHereError(message, f"End it: kill -9 {pid}") from error
        state: dict[str, Any] = json.loads(answer)
        if do == "stop":
            _wait_for_end()
    return state


def _wait_for_end() -> None:
    end = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < end and keeper_socket().exists():
        time.sleep(0.02)
