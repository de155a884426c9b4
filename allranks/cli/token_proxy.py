"""Show another program's pages on loopback to those who know a token; the program listens on a Unix socket."""

from __future__ import annotations

import hmac
import http.client
import secrets
import socket
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

_LOOPBACK = "127.0.0.1"
_COOKIE = "allranks_token"
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length"})
"""Headers of one connection, which a proxy does not pass on: RFC 9110, section 7.6.1."""


class TokenProxy(ThreadingHTTPServer):
    """A server on loopback that passes requests on to the program behind a socket.

    Args:
        program: the Unix socket, in a folder that only this user may enter.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, program: Path) -> None:
        self.program = program
        self.token = secrets.token_urlsafe(24)
        super().__init__((_LOOPBACK, 0), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who this machine is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, self.server_address[1]

    @property
    def address(self) -> str:
        """The address to open first: its answer sets the cookie that all other requests need."""
        return f"http://{_LOOPBACK}:{self.server_port}/{self.token}"


class _ProgramConnection(http.client.HTTPConnection):
    def __init__(self, program: Path) -> None:
        super().__init__("localhost")
        self._program = program

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._program))


class _Handler(BaseHTTPRequestHandler):
    server: TokenProxy
    protocol_version = "HTTP/1.1"
    server_version = "allranks"
    sys_version = ""
    timeout = 60.0  # seconds until a connection that asks nothing is closed

    def _pass_on(self) -> None:
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{_LOOPBACK}:{port}", f"localhost:{port}"):
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        if self._is_token(self.path.strip("/")):
            cookie = f"{_COOKIE}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
            return self._send(HTTPStatus.SEE_OTHER, [("Location", "/"), ("Set-Cookie", cookie)], b"")
        if not self._is_token(self._cookie()):
            return self._refuse(HTTPStatus.UNAUTHORIZED)
        return self._forward()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _pass_on  # noqa: N815

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return ""
        return found.value if found else ""

    def _forward(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        connection = _ProgramConnection(self.server.program)
        try:
            connection.request(self.command, self.path, body, kept)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            return self._refuse(HTTPStatus.BAD_GATEWAY)
        finally:
            connection.close()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
        return self._send(HTTPStatus(answer.status), headers, content)

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._send(status, [("Content-Type", "text/plain"), ("Connection", "close")], status.phrase.encode())

    def _send(self, status: HTTPStatus, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in (*headers, ("Content-Length", str(len(body))), ("Referrer-Policy", "no-referrer")):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the first request names the token."""
