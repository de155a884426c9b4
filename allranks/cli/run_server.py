"""``allranks runs serve``: the pages of all runs on this machine alone, which follow what goes on, until Ctrl+C."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from allranks.cli.run_list import SORT_KEYS, STARTED, STATUSES, ListChoice, RunIndex, split_statuses
from allranks.cli.run_rows import run_cells
from allranks.cli.run_state import read_run_state
from allranks.errors import AllranksError, CannotRunHereError, UnknownNameError, UsageError
from allranks.local.folders import RunFolder, RunsHome
from allranks.local.logged import FollowedFiles
from allranks.local.page.compare import compare_runs, comparison_page
from allranks.local.page.document import kept_document, run_document
from allranks.local.page.logs import Pointing, log_after, log_before, search_log, step_logs
from allranks.local.page.render import prepare_templates, render_page
from allranks.local.report import run_page
from allranks.local.result import RUNNING
from allranks.local.traces import LogTraces

_LOOPBACK = "127.0.0.1"
_IDLE_SECONDS = 60.0  # until a connection that asks nothing is closed
_MOST_KEPT = 64  # documents of ended runs, in memory

_ON_A_PAGE = 50  # runs, in the list

_PLACE = re.compile(r"\d{1,18}")  # of a byte in a log

_JSON, _HTML = "application/json", "text/html; charset=utf-8"


class RunServer(ThreadingHTTPServer):
    """Answers whoever knows the token, which is the first part of each path.

    Args:
        home: the runs folder.
        port: on loopback; 0 for any that is free.

    Raises:
        CannotRunHereError: the port is taken.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, home: RunsHome, port: int = 0) -> None:
        self.home = home
        self.followed = FollowedFiles()
        self.index = RunIndex(home, self.followed)
        self.token = secrets.token_urlsafe(24)
        self._ended: dict[str, dict[str, Any]] = {}
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            message = f"port {port} of {_LOOPBACK} cannot be listened on: {error.strerror or error}."
            raise CannotRunHereError(message, "Leave --port out, and a free one is taken.") from error

    def server_bind(self) -> None:
        """As the standard library has it, without asking a name server who this machine is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no fault."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Where the index of the runs is, with the token."""
        return f"http://{_LOOPBACK}:{self.server_port}/{self.token}/"

    def document(self, run: RunFolder) -> dict[str, Any]:
        """What a run's page shows: anew while it goes on, and as it was kept afterwards."""
        if run.id in self._ended:
            return self._ended[run.id]
        found = kept_document(run)
        if found is None:
            state = read_run_state(run, self.followed)
            if state["status"] == RUNNING:
                return run_document(run, state, followed=self.followed)
            found = run_document(run, state)
        if len(self._ended) >= _MOST_KEPT:
            self._ended.pop(next(iter(self._ended)))
        self._ended[run.id] = found
        return found


class _Handler(BaseHTTPRequestHandler):
    """One connection: its requests one after another."""

    server: RunServer
    protocol_version = "HTTP/1.1"
    server_version = "allranks"
    sys_version = ""
    timeout = _IDLE_SECONDS
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        """Answer; nothing that can be asked changes anything."""
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{_LOOPBACK}:{port}", f"localhost:{port}"):
            return self._send(HTTPStatus.MISDIRECTED_REQUEST, "another host was asked for", "text/plain")
        path = urlsplit(self.path)
        token, _, rest = path.path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._send(HTTPStatus.NOT_FOUND, "there is no such page", "text/plain")
        try:
            answer, kind = self._answer([unquote(part) for part in rest.split("/")], parse_qs(path.query))
        except AllranksError as error:
            return self._send(HTTPStatus.NOT_FOUND, f"{error.message} {error.hint}", "text/plain; charset=utf-8")
        return self._send(HTTPStatus.OK, answer, kind)

    def _answer(self, parts: list[str], query: Mapping[str, list[str]]) -> tuple[str, str]:
        """The body and its type; raises AllranksError for what is not there."""
        home = self.server.home
        if parts == [""]:
            return _index_page(self.server.index, _list_choice(query)), _HTML
        if parts == ["compare"]:
            runs = [home.find(name) for name in query.get("run", [])]
            if len(runs) < 2:
                raise UsageError("fewer than two runs were ticked.", "Go back, and tick those to be compared.")
            compared = compare_runs(runs, [self.server.document(run) for run in runs])
            return comparison_page(compared, served=True), _HTML
        if parts[0] != "runs" or len(parts) not in (2, 3):
            raise UnknownNameError("there is no such page.")
        run = home.find(parts[1])
        if len(parts) == 2:
            return run_page(run, self.server.document(run), served=True), _HTML
        return json.dumps(self._about_run(run, parts[2], {name: values[0] for name, values in query.items()})), _JSON

    def _about_run(self, run: RunFolder, what: str, query: Mapping[str, str]) -> dict[str, Any]:
        if what == "run.json":
            return self.server.document(run)
        answers: dict[str, Callable[[Path, Mapping[str, str], Pointing], dict[str, Any]]] = {
            "logs": _log_piece,
            "search": _log_search,
        }
        if what not in answers:
            raise UnknownNameError("there is no such page.")
        step = query.get("step", "")
        steps = read_run_state(run, self.server.followed)["steps"]
        if query.get("log") not in (logs := step_logs(run.step(step)) if step in steps else {}):
            raise UnknownNameError("there is no such log.")  # only names can be given, and no path
        return answers[what](logs[query["log"]], query, LogTraces(run.step(step).logs).point)

    def _send(self, status: HTTPStatus, answer: str, kind: str) -> None:
        body = answer.encode(errors="replace")
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if status is HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        self.send_response_only(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "ETag": tag,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",  # the token is part of the address
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: a page asks every second, and each line would tell the token."""


def _list_choice(query: Mapping[str, list[str]]) -> ListChoice:
    """What of the runs an address asks for; raises UsageError."""
    given = {name: values[0] for name, values in query.items()}
    page = given.get("page", "1")
    return ListChoice(
        search=given.get("search", "").strip(),
        statuses=split_statuses(",".join(query.get("status", []))),
        sort=given.get("sort", STARTED),
        reverse=given.get("reverse") == "true",
        page=int(page) if _PLACE.fullmatch(page) else 0,
        limit=_ON_A_PAGE,
    )


def _index_page(index: RunIndex, choice: ListChoice) -> str:
    """The list of the runs; raises UsageError for what ``choose`` refuses."""
    listed = index.choose(choice)
    names = ("id", "status", "done", "when", "took", "asked", "measured")
    found = [index.row(folder) for folder in listed.folders]
    rows = [dict(zip(names, run_cells(row, choice.metric), strict=True)) for row in found]
    orders = list(dict.fromkeys([*SORT_KEYS, *index.metrics(), choice.sort]))
    pages = {word: _address(choice, page) for word, page in _neighbours(choice.page, listed.pages)}
    shown = {"runs": rows, "place": str(index.home.runs), "choice": choice, "listed": listed, "pages": pages}
    shown |= {"statuses": STATUSES, "orders": orders}
    told = [{"run_id": row.run_id, "status": row.status} for row in found]
    return render_page("runs.html", {"runs": told}, shown, served=True, follows=True)


def _neighbours(page: int, pages: int) -> Iterator[tuple[str, int]]:
    """The pages that one can go to from a page, and what they are called."""
    if page > 1:
        yield from (("first", 1), ("previous", page - 1))
    if page < pages:
        yield from (("next", page + 1), ("last", pages))


def _address(choice: ListChoice, page: int) -> str:
    """The address of another page of the same list."""
    asked = [("search", choice.search), *(("status", status) for status in choice.statuses)]
    asked += [("sort", choice.sort), ("reverse", "true" if choice.reverse else ""), ("page", str(page))]
    return "?" + urlencode([(name, value) for name, value in asked if value])


def _log_piece(log: Path, query: Mapping[str, str], point: Pointing) -> dict[str, Any]:
    """A piece of a log: what follows a byte, what comes before one, or the end."""
    places = {name: int(query[name]) for name in ("after", "before") if _PLACE.fullmatch(query.get(name, ""))}
    if "after" in places:
        return asdict(log_after(log, places["after"], point=point))
    return asdict(log_before(log, places.get("before"), point=point))


def _log_search(log: Path, query: Mapping[str, str], point: Pointing) -> dict[str, Any]:
    """The first lines of a log that hold a text, and how many do."""
    found, count = search_log(log, query.get("text", ""))
    return {"count": count, "matches": [{"start": start, "line": point(line)} for start, line in found]}


def serve_runs(home: RunsHome, run: RunFolder | None, port: int, opened: Callable[[str], None]) -> int:
    """Serve until Ctrl+C; ``opened`` is told where the page of the run is, or the index of all if none is given."""
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port {port} is no port.", "A port is a number from 1 to 65535; 0 takes a free one.")
    prepare_templates()
    with RunServer(home, port) as server:
        opened(server.address + (f"runs/{run.id}" if run else ""))
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return 0
    return 0
