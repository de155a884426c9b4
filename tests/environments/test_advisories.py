"""No locked version has a known hole that nobody has looked at; the index and the database are the test's own."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from allranks import advisories
from allranks.advisory_sources import ask_index, read_database
from allranks.errors import CannotRunHereError, StorageError, UsageError

HOLE = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-1"],
    "fixed_in": ["9.9"],
    "link": "https://osv.dev/x",
    "withdrawn": None,
}
OLD = {**HOLE, "id": "PYSEC-2020-1", "withdrawn": "2021-01-01T00:00:00Z"}


def test_no_locked_version_has_a_hole_that_is_not_accepted() -> None:
    document = advisories.read_advisories()
    if document is None:
        pytest.skip("the index was not asked yet: allranks renew --advisories")
    found, idle = advisories.open_advisories(document, advisories.locked_versions(), advisories.accepted_advisories())
    assert not found, "raise the version (make locks), or accept it: " + "; ".join(map(str, found))
    assert not idle, f"accepted, and no hole of a locked version any more: {idle}"


def test_every_lock_is_asked_for() -> None:
    locked = advisories.locked_versions()
    assert len(locked) > 150
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[0-9][\w.!]*", one) for one in locked), locked
    assert {one.partition("==")[0] for one in locked} >= {"torch", "mlflow-skinny", "deepspeed", "tensorflow-cpu"}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, dict[str, bytes | int]]]:
    """An index with a JSON API: what it answers, by path below it."""
    answers: dict[str, bytes | int] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, 404)
            self.send_response(answer if isinstance(answer, int) else 200)
            self.end_headers()
            self.wfile.write(answer if isinstance(answer, bytes) else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(advisories, "advisories_file", lambda: tmp_path / "advisories.json")
    monkeypatch.setattr(advisories, "locked_versions", lambda: ["a==1.0", "b==2.0", "c==3.0"])
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_what_the_index_says_is_written_once(index, tmp_path: Path) -> None:
    address, answers = index
    answers["/a/1.0/json"] = json.dumps({"vulnerabilities": [HOLE, OLD]}).encode()
    answers["/b/2.0/json"] = json.dumps({"vulnerabilities": []}).encode()
    ask = partial(ask_index, index=address)
    assert advisories.renew_advisories(ask) == [tmp_path / "advisories.json"]
    assert advisories.renew_advisories(ask) == []
    written = json.loads((tmp_path / "advisories.json").read_text())
    assert written["source"] == address
    assert written["unknown"] == ["c==3.0"]
    assert {package: [one["id"] for one in found] for package, found in written["versions"].items()} == {
        "a==1.0": ["PYSEC-2026-1"],
        "b==2.0": [],
    }
    document = advisories.read_advisories()
    assert document is not None
    found, idle = advisories.open_advisories(document, ["a==1.0", "b==2.0"], {"CVE-9": "gone"})
    assert [str(one) for one in found] == ["a==1.0: PYSEC-2026-1, CVE-2026-1; fixed in 9.9; https://osv.dev/x"]
    assert idle == ["CVE-9"]
    assert advisories.open_advisories(document, ["a==1.0"], {"CVE-2026-1": "not reached"}) == ([], [])
    assert advisories.open_advisories(document, ["a==1.0"], {"CVE-2026-1": " "})[0]
    assert advisories.open_advisories(document, ["a==1.1"], {}) == ([], [])


@pytest.mark.parametrize(
    ("answer", "says"),
    [(404, "has no JSON API"), (503, "answered 503"), (b"<html>", "cannot be read"), (b"[]", "cannot be read")],
)
def test_an_index_that_cannot_say_is_an_error_and_writes_nothing(index, tmp_path: Path, answer, says: str) -> None:
    address, answers = index
    answers.update(dict.fromkeys(("/a/1.0/json", "/b/2.0/json", "/c/3.0/json"), answer))
    with pytest.raises(CannotRunHereError, match=says):
        advisories.renew_advisories(partial(ask_index, index=address))
    assert list(tmp_path.iterdir()) == []


DESCRIBED = """
id: PYSEC-2026-7
modified: "2026-03-04T05:06:07Z"
aliases: [CVE-2026-7]
{more}
affected:
- package: {{ecosystem: PyPI, name: Some_Package}}
  versions: [{versions}]
  ranges:
  - {{type: GIT, repo: "https://example.org", events: [{{introduced: "0"}}]}}
  - {{type: ECOSYSTEM, events: [{events}]}}
"""
SPANS = '{introduced: "1.2"}, {fixed: "1.4"}, {introduced: "2.0"}, {last_affected: "2.3"}'


def database(folder: Path, events: str = SPANS, versions: str = "", more: str = "") -> Path:
    """A clone with one description."""
    place = folder / "clone" / "vulns" / "some-package"
    place.mkdir(parents=True)
    (place / "PYSEC-2026-7.yaml").write_text(DESCRIBED.format(events=events, versions=versions, more=more))
    return folder / "clone"


@pytest.mark.parametrize(
    ("version", "mended"),
    [("1.1", None), ("1.2", ("1.4",)), ("1.3.9", ("1.4",)), ("1.4", None), ("2.0", ()), ("2.3", ()), ("2.3.1", None)],
)
def test_a_clone_of_the_database_says_which_versions_have_a_hole(tmp_path: Path, version: str, mended) -> None:
    package = f"some-package=={version}"
    known = read_database([package, "other==1.0"], database(tmp_path))
    assert known.as_of == "2026-03-04"
    assert known.versions["other==1.0"] == []
    found = [(one.id, one.aliases, one.fixed_in) for one in known.versions[package]]
    assert found == ([] if mended is None else [("PYSEC-2026-7", ("CVE-2026-7",), mended)])


def test_a_version_that_is_listed_has_the_hole_and_what_was_withdrawn_is_none(tmp_path: Path) -> None:
    package = "some-package==1.0.post1"
    listed = database(tmp_path / "listed", versions='"1.0.post1"')
    assert [one.id for one in read_database([package], listed).versions[package]] == ["PYSEC-2026-7"]
    gone = database(tmp_path / "gone", versions='"1.0.post1"', more='withdrawn: "2026-04-01T00:00:00Z"')
    assert read_database([package], gone).versions[package] == []


@pytest.mark.parametrize("events", ["1", '{fixed: "no version"}'])
def test_a_damaged_database_is_an_error(tmp_path: Path, events: str) -> None:
    with pytest.raises(StorageError, match=r"PYSEC-2026-7\.yaml is damaged"):
        read_database(["some-package==1.0"], database(tmp_path, events=events))
    with pytest.raises(UsageError, match="has no folder vulns"):
        read_database(["some-package==1.0"], tmp_path)
