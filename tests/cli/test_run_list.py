"""Which of many runs are listed: in the terminal, and by the same rules on the served page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from allranks.cli.run_server import RunServer
from allranks.local.folders import RunsHome
from tests.cli.conftest import Called
from tests.cli.test_runs import make_run
from tests.cli.test_serve import ask, server

__all__ = ["server"]

COUNT = 1000


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> RunsHome:
    """A thousand runs of one run's making: every fifth has failed, and what they have measured and taken differs."""
    home = RunsHome(tmp_path_factory.mktemp("thousand") / ".allranks")
    state = json.loads(make_run(home.path, "20260101-000000").state.read_text())
    for number in range(COUNT):
        folder = home.run(f"20260101-{number:06}")
        folder.path.mkdir(exist_ok=True)
        status = "succeeded" if number % 5 else "failed"
        metrics = {"loss": number % 100, **({"f1": "NaN" if number == 7 else number} if number < 8 else {})}
        steps = {"train": {**state["steps"]["train"], "status": status, "metrics": metrics}}
        times = {"started": 1e9 + number, "ended": 1e9 + number + number % 77}
        about = {"run_id": folder.id, "status": status, "values": {"epochs": number}, "steps": steps}
        folder.state.write_text(json.dumps({**state, **times, **about}))
    return home


@pytest.fixture
def listed(cli: Callable[..., Called], home: RunsHome) -> Callable[..., tuple[list[int], Called]]:
    """The numbers of the runs that a list has, and all that was printed."""

    def call(*arguments: str) -> tuple[list[int], Called]:
        called = cli("runs", "list", "--runs-dir", str(home.path), *arguments)
        return [int(line[9:15]) for line in called.out.splitlines()], called

    return call


def numbers(first: int, last: int, step: int = 1) -> list[int]:
    return list(range(first, last + (1 if step > 0 else -1), step))


@pytest.mark.parametrize(
    ("options", "expected", "note"),
    [
        ("", numbers(999, 980, -1), "runs 1 to 20 of 1000; `--page 2` shows the next, `--limit 0` all."),
        ("--page 50", numbers(19, 0, -1), "runs 981 to 1000 of 1000; `--limit 0` all."),
        ("--limit 0", numbers(999, 0, -1), ""),
        ("--limit 3 --page 2 --reverse", [3, 4, 5], "runs 4 to 6 of 1000; `--page 3` shows the next, `--limit 0` all."),
        ("--status failed --limit 2", [995, 990], "of 200"),
        ("--status failed,succeeded --limit 1", [999], "of 1000"),
        ("--search epochs=99 --limit 0", [*numbers(999, 990, -1), 99], ""),
        ("--search 20260101-00042 --status succeeded", [429, 428, 427, 426, 424, 423, 422, 421], ""),
        ("--search IMAGE_class --limit 1", [999], "of 1000"),
        ("--search train.f1 --limit 2", [7, 6], "of 8"),
        ("--sort duration --limit 2", [999 - 999 % 77 - 1, 999 - 999 % 77 - 78], "of 1000"),
        ("--sort f1 --limit 9", [6, 5, 4, 3, 2, 1, 0, 999, 998], "of 1000"),
        ("--sort train.f1 --search epochs=7 --reverse --limit 1", [799], "of"),
        ("--sort loss --reverse --limit 2 --status succeeded", [901, 801], "of 800"),
    ],
)
def test_what_is_listed_and_what_shows_the_rest(
    listed: Callable[..., tuple[list[int], Called]], options: str, expected: list[int], note: str
) -> None:
    found, called = listed(*options.split())
    assert (found, called.code) == (expected, 0)
    assert note in called.err
    assert bool(note) == bool(called.err)


def test_a_program_gets_all_and_their_number(cli: Callable[..., Called], home: RunsHome) -> None:
    everything = cli("runs", "--json", "--runs-dir", str(home.path)).json
    assert (len(everything["runs"]), everything["total"]) == (COUNT, COUNT)
    some = cli("runs", "list", "--json", "--limit", "2", "--status", "failed", "--runs-dir", str(home.path)).json
    assert ([run["run_id"] for run in some["runs"]], some["total"]) == (["20260101-000995", "20260101-000990"], 200)


def test_what_runs_are_sorted_by_is_what_is_shown(listed: Callable[..., tuple[list[int], Called]]) -> None:
    assert listed("--sort", "f1", "--limit", "1")[1].out.rstrip().endswith("train.f1=6")


def test_that_none_fits_is_said(cli: Callable[..., Called], home: RunsHome) -> None:
    called = cli("runs", "list", "--search", "nobody", "--runs-dir", str(home.path))
    assert (called.code, called.out) == (0, f"none of the 1000 runs in {home.runs} fits\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--status", "faild"], "no run has the status 'faild' (did you mean 'failed'?)."),
        (["--sort", "lose"], "runs are not sorted by 'lose' (did you mean 'loss'?)."),
        (["--limit", "-1"], "the limit -1 is below 0."),
        (["--page", "0"], "there is no page 0."),
        (["--page", "51"], "there is no page 51: 1000 runs fit, 20 are on a page."),
    ],
)
def test_what_cannot_be_listed_is_refused(
    listed: Callable[..., tuple[list[int], Called]], options: list[str], message: str
) -> None:
    _, called = listed(*options)
    assert called.code == 2
    assert message in called.err


def test_the_page_has_the_same_rules_and_leads_on(server: RunServer) -> None:
    def shown(query: str) -> tuple[list[str], str]:
        status, page, _ = ask(server, query)
        assert status == 200, page
        return re.findall(r'href="runs/20260101-0*(\d+)"', page), page

    found, page = shown("")
    assert (found[0], found[-1], "1 to 50 of 1000" in page) == ("999", "950", True)
    assert '<a href="?sort=started&amp;page=2">next</a>' in page
    found, page = shown("?status=failed&status=cancelled&search=epochs&sort=loss&reverse=true&page=2")
    assert (found[0], "51 to 100 of 200" in page) == ("925", True)
    following = re.search(r'<a href="([^"]*)">next</a>', page)
    assert following is not None
    assert "101 to 150 of 200" in shown(following[1].replace("&amp;", "&"))[1]
    assert "No run fits." in shown("?search=nobody")[1]
    for query in ("?sort=lose", "?page=99", "?page=x", "?status=faild"):
        assert ask(server, query)[0] == 404
    assert "&lt;b&gt;" in shown("?search=%3Cb%3E")[1], "what was searched is a text"
