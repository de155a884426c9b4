"""The tracking server of a run: a process beside the engine, which MLflow's clients reach on loopback.

The engine binds the socket and starts this when the first client has connected, so a run that logs nothing never pays
for it. Whoever has no token gets no answer, since every user of the machine reaches its loopback.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from allranks.errors import AllranksError
from allranks.local.folders import RunsHome
from allranks.local.tracking import JOB_TAG, SETTLE_PATH
from allranks.local.tracking.database import transaction
from allranks.local.tracking.routes import FoundRoute, find_route
from allranks.local.tracking.store import TrackingError, TrackingStore

MLFLOW_VERSION = "3.1.0"
"""What ``/version`` says: clients from 3.4 on would otherwise send traces."""
LARGEST_BODY = 16 * 2**20  # bytes; MLflow's clients send at most 1 MB, but for the profile of a data set
_SETTLE_SECONDS = 5.0
_STRANGER_SECONDS = 30.0  # that a connection may be silent before its first request
_IDLE_SECONDS = 3600.0  # and between two of them
_STATUS = {"RESOURCE_DOES_NOT_EXIST": 404, "ENDPOINT_NOT_FOUND": 404, "UNAUTHENTICATED": 401}


class _Connection:
    """What is known of a connection: requests answered, and whether one is being answered."""

    def __init__(self) -> None:
        self.answered = 0
        self.busy = False
        self.closed = False


class TrackingServer(ThreadingHTTPServer):
    """Answers on a socket that somebody else has bound.

    Args:
        listener: listening.
        home: the runs folder whose runs are tracked.
        token: that clients have to send.

    Raises:
        StorageError: the folder cannot be written to.
        sqlite3.Error: the database cannot be opened.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, home: RunsHome, token: str) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # the one that was made to be bound
        self.socket = listener
        self.store = TrackingStore(home)
        self.turn = threading.Lock()  # a connection to SQLite serves one thread at a time
        self.connections: dict[Any, _Connection] = {}
        self._expected = f"Bearer {token}".encode()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Note the connection before its thread runs, so that ``settle`` sees every one that came before it."""
        self.connections[request] = _Connection()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is over."""
        connection = self.connections.pop(request, None)
        if connection is not None:
            connection.closed = True
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away; what else goes wrong is answered."""

    def check_token(self, header: str) -> str:
        """See that a client has sent the token, and for which job; how long that takes says nothing about it.

        Raises:
            TrackingError: it has not.
        """
        token, _, job = header.partition(".")
        if not hmac.compare_digest(token.encode(errors="replace"), self._expected):
            message = "The token is missing or wrong: only the steps of this run may log here."
            raise TrackingError("UNAUTHENTICATED", message)
        return job

    def settle(self, asking: Any) -> None:
        """Wait until everything is stored that clients had sent when this was asked for, at most some seconds."""
        before = [(one, state, state.answered) for one, state in list(self.connections.items()) if one is not asking]
        give_up = time.monotonic() + _SETTLE_SECONDS
        for request, state, answered in before:
            while not state.closed and state.answered == answered and time.monotonic() < give_up:
                if not _has_news(request) and not state.busy:
                    break
                time.sleep(0.001)


def _is_readable(connection: socket.socket, seconds: float | None) -> bool:
    """Whether something was sent, or the connection has ended, within so many seconds."""
    waiting = select.poll()  # select() takes no descriptor above 1023
    waiting.register(connection, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))


def _has_news(request: socket.socket) -> bool:
    try:
        return _is_readable(request, 0)
    except (OSError, ValueError):  # it was closed
        return False


class _Handler(BaseHTTPRequestHandler):
    """One connection: its requests one after another."""

    server: TrackingServer
    protocol_version = "HTTP/1.1"
    server_version = "allranks"
    sys_version = ""
    timeout = _STRANGER_SECONDS
    wbufsize = -1  # head and body in one packet: two would wait for each other's acknowledgement
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        """Wait for a request, then answer it; between the two nothing has been read, which ``settle`` relies on."""
        state = self.server.connections[self.request]
        if not _is_readable(self.connection, self.connection.gettimeout()):
            self.close_connection = True
            return
        state.busy = True
        try:
            super().handle_one_request()
        finally:
            state.answered += 1
            state.busy = False

    def do_GET(self) -> None:
        """Answer a request that changes nothing."""
        self._respond()

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: there may be thousands of requests."""

    def _respond(self) -> None:
        try:
            body = self._body()
            path = urlsplit(self.path)
            if path.path in {"/health", "/version"}:
                return self._send(200, b"OK" if path.path == "/health" else MLFLOW_VERSION.encode(), "text/plain")
            job = self.server.check_token(self.headers.get("Authorization", ""))
            self.connection.settimeout(_IDLE_SECONDS)
            if path.path == SETTLE_PATH:
                self.server.settle(self.request)
                return self._send_json(200, {})
            route = find_route(self.command, path.path)
            request = {**_query(path.query), **_document(body), **route.fields, JOB_TAG: job}
            answer = self._answer(route, request)
        except TrackingError as error:
            return self._send_error(_STATUS.get(error.code, 400), error.code, str(error))
        except (sqlite3.Error, OSError) as error:
            busy = "locked" in str(error)  # clients ask again after 503; a disk that is full stays full
            code = "TEMPORARILY_UNAVAILABLE" if busy else "INTERNAL_ERROR"
            return self._send_error(503 if busy else 507, code, f"the metrics could not be kept: {error}")
        except Exception as error:  # noqa: BLE001 a fault of ours must not look like a server that is away
            return self._send_error(501, "INTERNAL_ERROR", f"{type(error).__name__}: {error}")
        return self._send_json(200, answer)

    def _answer(self, route: FoundRoute, request: Mapping[str, Any]) -> dict[str, Any]:
        store = self.server.store
        with self.server.turn:
            if not route.writes:
                return route.handler(store, request)
            with transaction(store.connection):
                return route.handler(store, request)

    def _body(self) -> bytes:
        """The body, read in any case: the next request begins after it."""
        size = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not size.isdecimal() or int(size) > LARGEST_BODY:
            self.close_connection = True
            raise TrackingError("BAD_REQUEST", f"A request has at most {LARGEST_BODY} bytes, and says how many.")
        return self.rfile.read(int(size))

    def _send_error(self, status: int, code: str, message: str) -> None:
        self._send_json(status, {"error_code": code, "message": message})

    def _send_json(self, status: int, document: object) -> None:
        self._send(status, json.dumps(document, allow_nan=False).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response_only(status, HTTPStatus(status).phrase)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _query(text: str) -> dict[str, Any]:
    return {name: values[0] if len(values) == 1 else values for name, values in parse_qs(text).items()}


def _document(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise TrackingError("BAD_REQUEST", "The body of the request is not JSON.") from None
    if not isinstance(document, dict):
        raise TrackingError("BAD_REQUEST", "The body of the request is no JSON object.")
    return document


def serve_tracking() -> None:
    """Serve until the engine ends: its arguments are a descriptor and the runs folder, the token comes on stdin."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    token = sys.stdin.readline().strip()
    try:
        server = TrackingServer(listener, RunsHome(Path(sys.argv[2])), token)
    except (sqlite3.Error, OSError, AllranksError) as error:
        sys.exit(f"the tracking server could not start: {error}")
    threading.Thread(target=server.serve_forever, args=[3600.0], daemon=True).start()
    sys.stdin.read()  # ends with the engine, which writes nothing more
