"""`allranks runs serve`: who is answered, and with what; tests/browser has how it looks."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from allranks.cli.run_server import RunServer
from allranks.local.folders import RunFolder, RunsHome
from tests.cli.conftest import Called
from tests.cli.test_runs import make_run
from tests.waiting import TIMEOUT


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = make_run(tmp_path / ".allranks", "r1")
    folder.step("train").log(0).write_text("".join(f"line {number} of rank 0\n" for number in range(20_000)))
    folder.step("train").log(1).write_text("password=hunter2 and The End")
    return folder


@pytest.fixture
def home(run: RunFolder) -> RunsHome:
    return run.home


@pytest.fixture
def server(home: RunsHome) -> Iterator[RunServer]:
    with RunServer(home) as serving:
        threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield serving
        serving.shutdown()


def ask(server: RunServer, path: str, host: str = "", token: str = "", **headers: str) -> tuple[int, str, str]:
    """The status, the body and the tag of an answer."""
    port = server.server_port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    connection.putrequest("GET", f"/{token or server.token}/{path}", skip_host=True)
    for name, value in {"Host": host or f"127.0.0.1:{port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, answer.headers.get("ETag", "")


def test_it_listens_on_loopback_alone_at_an_address_that_holds_a_token(server: RunServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert len(urlsplit(server.address).path.strip("/")) >= 32
    with RunServer(server.home) as other:
        assert other.token != server.token


@pytest.mark.parametrize(
    ("path", "how", "status"),
    [
        ("", {}, 200),
        ("", {"host": "localhost:{port}"}, 200),
        ("", {"host": "evil.example:{port}"}, 421),
        ("", {"host": "127.0.0.1"}, 421),
        ("", {"token": "wrong"}, 404),
        ("runs/r1", {"token": "%C3%A9"}, 404),
        ("runs/r1", {}, 200),
        ("runs/r2", {}, 404),
        ("runs/r1/request.json", {}, 404),
        ("runs/../../etc/passwd", {}, 404),
        ("compare?run=r1", {}, 404),
        ("runs/r1/logs?step=train&log=std_log_process_0.txt", {}, 200),
        ("runs/r1/logs?step=train&log=../../../run.json", {}, 404),
        ("runs/r1/logs?step=../train&log=std_log_process_0.txt", {}, 404),
        ("runs/r1/logs?step=train&log=std_log_process_0.txt&before=x", {}, 200),
    ],
)
def test_nobody_else_is_answered_and_only_pages_and_logs_are(
    server: RunServer, path: str, how: dict[str, str], status: int
) -> None:
    asked = {name: value.format(port=server.server_port) for name, value in how.items()}
    assert ask(server, path, **asked)[0] == status


def test_logs_come_in_whole_lines_and_without_secrets(server: RunServer, run: RunFolder) -> None:
    log = "runs/r1/logs?step=train&log=std_log_process_0.txt"
    end = json.loads(ask(server, log)[1])
    assert end["end"] == end["size"] == run.step("train").log(0).stat().st_size
    assert end["text"].endswith("line 19999 of rank 0\n")
    before = json.loads(ask(server, f"{log}&before={end['start']}")[1])
    assert before["end"] == end["start"]
    joined = before["text"] + end["text"]
    assert joined.splitlines()[0] in {f"line {number} of rank 0" for number in range(20_000)}
    assert joined in run.step("train").log(0).read_text()
    after = json.loads(ask(server, f"{log}&after={end['start']}")[1])
    assert end["text"].startswith(after["text"])
    other = json.loads(ask(server, "runs/r1/logs?step=train&log=std_log_process_1.txt")[1])
    assert other["text"] == "password=*** and The End"


def test_a_search_counts_all_lines_and_shows_the_first(server: RunServer) -> None:
    search = "runs/r1/search?step=train&log=std_log_process_{}.txt&text={}"
    found = json.loads(ask(server, search.format(0, "LINE%2019999"))[1])
    assert (found["count"], found["matches"][0]["line"]) == (1, "line 19999 of rank 0")
    many = json.loads(ask(server, search.format(0, "rank"))[1])
    assert (many["count"], len(many["matches"])) == (20_000, 200)
    (last,) = json.loads(ask(server, search.format(1, "the%20end"))[1])["matches"]
    assert last == {"start": 0, "line": "password=*** and The End"}
    assert json.loads(ask(server, search.format(0, ".*"))[1])["count"] == 0, "a text, no pattern"


def test_what_has_not_changed_is_not_sent_again(server: RunServer) -> None:
    status, page, tag = ask(server, "runs/r1")
    assert (status, "data-served" in page) == (200, True)
    assert ask(server, "runs/r1", **{"If-None-Match": tag})[:2] == (304, "")


def test_the_page_has_what_json_prints(server: RunServer, cli: object, run: RunFolder) -> None:
    printed: Called = cli("runs", "show", "r1", "--json", "--runs-dir", str(run.home.path))  # type: ignore[operator]
    page = ask(server, "runs/r1")[1]
    embedded = page.partition('id="document">')[2].partition("</script>")[0]
    assert json.loads(embedded) == json.loads(ask(server, "runs/r1/run.json")[1]) == printed.json


def test_a_port_that_is_taken_or_none_is_said(server: RunServer, cli: object, run: RunFolder) -> None:
    home = str(run.home.path)
    taken: Called = cli("runs", "serve", "--port", str(server.server_port), "--runs-dir", home)  # type: ignore[operator]
    assert taken.code == 2
    assert "Address already in use" in taken.err
    none: Called = cli("runs", "serve", "--port", "70000", "--runs-dir", home)  # type: ignore[operator]
    assert none.code == 2
    assert "--port 70000 is no port" in none.err
