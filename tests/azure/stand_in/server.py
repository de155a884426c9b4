"""The HTTPS server: reads a request, lets faults and routes answer it, keeps the log."""

from __future__ import annotations

import socket
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.azure.stand_in import assets, history, identity, jobs, storage, workspace
from tests.azure.stand_in.exchange import Answer, RefusedError, Request, answer
from tests.azure.stand_in.faults import Fault, next_fault
from tests.azure.stand_in.state import State

ROOMS = (assets, history, identity, jobs, storage, workspace)
"""The modules whose handlers are registered by importing them."""


class Server(ThreadingHTTPServer):
    """Listens on loopback; the handshake takes place in the connection's own thread."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.state = State(base=f"https://localhost:{self.server_port}")
        workspace.reset(self.state)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no event."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Put TLS around the socket before anything is read."""
        server = cast("Server", self.server)
        self.request = server.context.wrap_socket(self.request, server_side=True)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def do_GET(self) -> None:
        state = cast("Server", self.server).state
        length = int(self.headers.get("Content-Length") or 0)
        url = urlsplit(self.path)
        fault = next_fault(state, f"{self.command} {self.path}")
        if fault is not None and fault.status == 0:
            self._hang_up(state, length)
            return
        body = self.rfile.read(length)
        if len(body) < length:  # the client has gone, and sends the whole again: no service would act on a half
            self._close()
            return
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, unquote(url.path), query, headers, body)
        reply = _reply(request, state, fault)
        state.remember(self.command, request.path, query, body, reply.status)
        if next_fault(state, f"answer of {self.command} {self.path}") is not None:
            self._close()
        else:
            self._send(reply)

    do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = do_GET  # noqa: N815 - as above

    def _hang_up(self, state: State, length: int) -> None:
        self.rfile.read(length // 2)
        state.remember(self.command, unquote(urlsplit(self.path).path), {}, b"", 0)
        self._close()

    def _close(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _send(self, reply: Answer) -> None:
        content = reply.content
        self.send_response(reply.status)
        kind = "application/octet-stream" if isinstance(reply.body, bytes) else "application/json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Print nothing: the state has a log."""


def _reply(request: Request, state: State, fault: Fault | None) -> Answer:
    if fault is not None:
        return fault.answer()
    try:
        identity.check_token(request)
        identity.check_place(request)
    except RefusedError as refusal:
        return refusal.answer
    return answer(request, state)
