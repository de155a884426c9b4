"""What pages and the terminal show is what ``--json`` says, in the words of one module."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.wording import duration_words, number_words, ranks_words, run_seconds, value_words
from tests.browser.chromium import Chromium
from tests.local.support import command, environ

NUMBERS = [
    0,
    1,
    -3,
    12.5,
    99999.94,
    999999,
    999999.5,
    1e6,
    123456789,
    1e15,
    1e22,
    0.1,
    1e-4,
    9.99999e-5,
    1e-7,
    2 / 3,
    -1e-300,
]


def shown_by(browser: Chromium, page: Path) -> str:
    """All text of a page, with what is folded."""
    browser.show(page.as_uri())
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 0")
    return " ".join(browser.run("document.body.innerText").split())


def printed(home: Path, run: str, *options: str) -> str:
    arguments = command("runs", "--runs-dir", home, "show", run, *options)
    return subprocess.run(arguments, env=environ(), capture_output=True, text=True, check=True).stdout


def run_words(document: dict[str, Any]) -> Iterator[str]:
    """What page and terminal both say of a run."""
    yield document["run_id"]
    yield document["status"]
    yield duration_words(run_seconds(document))
    for name, one in document["steps"].items():
        yield name
        yield one["status"]
        if one["seconds"] is not None:
            yield duration_words(one["seconds"])
        if one.get("nodes"):
            yield ranks_words(one["nodes"], one["processes"])


def page_words(document: dict[str, Any]) -> Iterator[str]:
    """What the page says beside that, of metrics, trials and failures."""
    for one in document["steps"].values():
        for name, value in one["metrics"].items():
            yield f"{name} {number_words(value)}"
        for trial in one.get("trials", ()):
            yield " ".join(map(value_words, trial["parameters"].values()))
            yield number_words(trial["metric"])
        if failure := one.get("failure"):
            yield " ".join(failure["message"].split())


@pytest.mark.parametrize("kind", ["good", "failed", "sweep"])
def test_the_page_and_the_terminal_say_what_json_says(browser: Chromium, runs: dict[str, Path], kind: str) -> None:
    run = runs[kind].parent.name
    document = json.loads(printed(runs["home"], run, "--json"))
    page, terminal = shown_by(browser, runs[kind]), printed(runs["home"], run)
    assert [words for words in (*run_words(document), *page_words(document)) if words not in page] == []
    assert [words for words in run_words(document) if words not in terminal] == []
    metrics = [(name, value) for one in document["steps"].values() for name, value in one["metrics"].items()]
    assert metrics
    told = " ".join(terminal.split())
    assert [name for name, value in metrics if f"{name}={number_words(value)}" not in told] == []


def test_the_charts_write_numbers_as_the_tables_do(browser: Chromium, runs: dict[str, Path]) -> None:
    browser.show(runs["good"].as_uri())
    assert browser.run(f"{json.dumps(NUMBERS)}.map((one) => numberWords(one)).join(' ')") == " ".join(
        map(number_words, NUMBERS)
    )
