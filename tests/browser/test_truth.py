"""What pages and the terminal show is what ``--json`` says, in the words of one module."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import allranks
from allranks.local.metrics_file import read_metrics_document
from allranks.local.resources.words import resource_row_words
from allranks.wording import (
    compared_words,
    duration_words,
    number_words,
    ranks_words,
    run_seconds,
    short_number,
    size_words,
    step_time,
    value_words,
)
from tests.browser.chromium import Chromium
from tests.local.support import command, environ

pytestmark = pytest.mark.slow

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
NOT_FINITE = {"NaN": "NaN", "1 / 0": "Infinity", "-1 / 0": "-Infinity"}
"""What a script of a page says, and what ``--json`` does."""


def shown_by(browser: Chromium, page: Path) -> str:
    """All text of a page, with what is folded."""
    browser.show(page.as_uri())
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 0")
    return " ".join(browser.run("document.body.innerText").split())


def shown_html(browser: Chromium, html: str) -> str:
    """The text of a piece of HTML, as a notebook shows it below a cell."""
    browser.run(f"document.body.innerHTML = {json.dumps(html)}; 0")
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
        yield step_time(one)
        if one.get("nodes"):
            yield ranks_words(one["nodes"], one["processes"])


def ended_words(document: dict[str, Any]) -> Iterator[str]:
    """What is said of a run where there is little room: all but how long the whole took."""
    whole = duration_words(run_seconds(document))
    return (words for words in run_words(document) if words != whole)


def short_words(view: allranks.RunView) -> Iterator[str]:
    """The loss of each step as one line has it."""
    return (f"loss {short_number(step.metrics['loss'])}" for step in view.steps.values() if "loss" in step.metrics)


def page_words(document: dict[str, Any]) -> Iterator[str]:
    """What the page says beside that, of metrics, trials and failures."""
    for one in document["steps"].values():
        for name, value in read_metrics_document(one["metrics"]).items():
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
    metrics = [pair for one in document["steps"].values() for pair in read_metrics_document(one["metrics"]).items()]
    assert metrics
    told = " ".join(terminal.split())
    assert [name for name, value in metrics if f"{name}={number_words(value)}" not in told] == []
    assert ("gradient_norm=NaN" in told) == (kind == "failed")
    if kind == "failed":
        assert " 0.0 s" not in page + terminal, "a step that has not started took no time"
    view = allranks.load_run(run, runs_dir=runs["home"])
    assert view.seconds == run_seconds(document)
    cell = shown_html(browser, view._repr_html_())
    assert [words for words in (*ended_words(document), *short_words(view)) if words not in cell] == []


def test_a_comparison_says_in_the_terminal_on_a_page_and_in_python_what_json_says(
    browser: Chromium, runs: dict[str, Path]
) -> None:
    ids = [runs[name].parent.name for name in ("good", "failed")]
    compare = command("runs", "--runs-dir", runs["home"], "compare", *ids, "--json")
    document = json.loads(subprocess.run(compare, env=environ(), capture_output=True, text=True, check=True).stdout)
    both = allranks.compare(*ids, runs_dir=runs["home"])
    terminal, page = str(both), shown_by(browser, both.write_page(runs["home"] / "both.html"))
    rows = [*document["metrics"], *document["inputs"], *map(resource_row_words, document["resources"])]
    words = [compared_words(value) for row in rows for value in row["values"]]
    assert [one for one in words if one not in page or one not in terminal] == []
    assert {"NaN", "-"} <= set(words)
    values = [read_metrics_document(dict(zip(ids, row["values"], strict=True))) for row in document["metrics"]]
    assert both.metrics.dtypes.tolist() == ["float64", "float64"]
    assert both.metrics.compare(both.metrics.from_records(values, index=both.metrics.index)).empty


def test_the_charts_write_numbers_as_the_tables_do(browser: Chromium, runs: dict[str, Path]) -> None:
    browser.show(runs["good"].as_uri())
    assert {text: browser.run(f"numberWords({text})") for text in NOT_FINITE} == NOT_FINITE
    assert list(NOT_FINITE.values()) == [number_words(float(text)) for text in NOT_FINITE.values()]
    assert browser.run(f"{json.dumps(NUMBERS)}.map((one) => numberWords(one)).join(' ')") == " ".join(
        map(number_words, NUMBERS)
    )


def test_numbers_and_sizes_keep_their_digits_at_the_ends_of_their_ranges() -> None:
    shown = {12345.678: "12346", 9999.7: "10000", 9999.4: "9999", 0.078125: "0.07812", 1234567.8: "1.23457e+06"}
    assert {number: short_number(number) for number in shown} == shown
    sizes = {999.4: "999 B", 999.7: "1.0 kB", 999960: "1.0 MB", 999.96e6: "1.0 GB"}
    assert {size: size_words(size) for size in sizes} == sizes
