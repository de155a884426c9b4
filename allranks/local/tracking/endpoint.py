"""The engine's side of the tracking server: its socket, its token, and the process, started when it is first needed."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from allranks.child_process import child_command
from allranks.local import processes
from allranks.local.folders import RunsHome
from allranks.local.tracking import SETTLE_PATH
from allranks.local.variables import proxy_exceptions

_CHILD = "from allranks.local.tracking.server import serve_tracking; serve_tracking()"
_MOST_FAILURES = 3
_SETTLE_SECONDS = 10.0
_REQUEST_SECONDS = 1.0  # that a client gets to send its request to a server that could not start


class TrackingEndpoint:
    """Where the steps of a run log to.

    ``descriptor`` is to be watched: when it becomes readable, ``attend`` is due. It changes with that. ``warn`` is
    called with a text for the user once the server has failed for the last time.

    Args:
        home: the runs folder.
        log: the file that gets what the server says, which is why it could not start.
    """

    def __init__(self, home: RunsHome, log: Path) -> None:
        self._home = home
        self._log = log
        self._token = os.urandom(32).hex()
        self._listener: socket.socket | None = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._address: tuple[str, int] = self._listener.getsockname()
        self._child: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._failures = 0
        self.warn: Callable[[str], None] = lambda _: None

    @property
    def descriptor(self) -> int:
        """The server's pidfd while it runs, else the socket; -1 after ``close``."""
        if self._child is not None:
            return self._pidfd
        return -1 if self._listener is None else self._listener.fileno()

    @property
    def pids(self) -> set[int]:
        """The server's process, while there is one."""
        return set() if self._child is None else {self._child.pid}

    def variables(self, environ: Mapping[str, str], job: str = "") -> dict[str, str]:
        """What tells MLflow in a rank where to log; a proxy that the user has must not be asked for loopback.

        The token ends in the ``job``, the MLflow run of the step: so the server knows who makes a run of its own.
        """
        host, port = self._address
        token = f"{self._token}.{job}" if job else self._token
        found = {"MLFLOW_TRACKING_URI": f"http://{host}:{port}", "MLFLOW_TRACKING_TOKEN": token}
        found["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # the address ends with the run
        return found | proxy_exceptions(environ, [host])

    def attend(self) -> None:
        """Start the server when a client has connected, or note that it has ended: the next client starts another.

        After three that ended with an error none is started, and each client gets an error that it does not retry.
        """
        if self._child is None:
            if self._failures < _MOST_FAILURES:
                self._start()
            else:
                self._refuse()
            return
        self._failures += self._child.wait() > 0  # one that was killed says nothing of the next one
        self._forget()
        if self._failures == _MOST_FAILURES:
            self.warn(f"{self._problem} MLflow calls of this run fail.")

    def settle(self) -> None:
        """Wait until all is stored that ranks had sent; at once when nobody has connected."""
        can_start = self._listener is not None and self._failures < _MOST_FAILURES
        if self._child is None and can_start and self._is_called():
            self._start()
        if self._child is None or self._child.poll() is not None:  # in the queue of a dead one nobody answers
            return
        request = f"GET {SETTLE_PATH} HTTP/1.0\r\nAuthorization: Bearer {self._token}\r\n\r\n"
        try:  # with a socket alone: http.client takes longer to import than a step to start
            with socket.create_connection(self._address, _SETTLE_SECONDS) as connection:
                connection.sendall(request.encode())
                while connection.recv(4096):
                    pass
        except OSError:
            pass  # it has just died or hangs: what is stored is what there is

    def close(self) -> None:
        """End the server, after what it was sent."""
        self.settle()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._forget()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _is_called(self) -> bool:
        """Whether somebody has connected."""
        waiting = select.poll()
        waiting.register(self.descriptor, select.POLLIN)
        return bool(waiting.poll(0))

    def _start(self) -> None:
        assert self._listener is not None  # noqa: S101 otherwise nobody connects
        number = self._listener.fileno()
        command = child_command(_CHILD, str(number), str(self._home.path.absolute()))
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                bufsize=0,  # what a child that has ended does not read must not be written again at the close
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[number],
                start_new_session=True,
                preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 safe here: the engine has one thread
            )
        self._pidfd = os.pidfd_open(self._child.pid)
        assert self._child.stdin is not None  # noqa: S101 it is a pipe
        with suppress(BrokenPipeError):  # it has ended already, and the pidfd says so
            self._child.stdin.write(f"{self._token}\n".encode())

    @property
    def _problem(self) -> str:
        last = (self._log.read_text(errors="replace").splitlines() or [""])[-1]
        return f"The tracking server could not start: {last.strip()} (log: {self._log})."

    def _refuse(self) -> None:
        """Answer 501, which MLflow raises at once. It retries 500 and a refused connection for minutes."""
        body = json.dumps({"error_code": "INTERNAL_ERROR", "message": self._problem}).encode()
        head = "HTTP/1.1 501 Not Implemented\r\nContent-Type: application/json\r\nConnection: close\r\n"
        assert self._listener is not None  # noqa: S101 a client has connected
        with suppress(OSError), self._listener.accept()[0] as connection:
            connection.settimeout(_REQUEST_SECONDS)
            connection.recv(1 << 16)
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):  # closing before all is read would reset the connection
                pass

    def _forget(self) -> None:
        assert self._child is not None  # noqa: S101 it has just ended
        if self._child.stdin is not None:
            self._child.stdin.close()
        os.close(self._pidfd)
        self._child, self._pidfd = None, -1
