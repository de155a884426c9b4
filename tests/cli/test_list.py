from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allranks import catalogue
from allranks.cli import text
from allranks.wording import duration_words


def test_list_shows_everything_under_its_kind(cli: Callable[..., Any]) -> None:
    lines = cli("list").out.splitlines()
    assert [line for line in lines if line and not line.startswith((" ", "`"))] == [
        "components",
        "pipelines",
        "environments",
    ]
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names == [*catalogue.COMPONENTS, *catalogue.PIPELINES, *catalogue.ENVIRONMENTS]


def test_list_as_json(cli: Callable[..., Any]) -> None:
    document = cli("list", "--json").json
    assert list(document) == ["components", "pipelines", "environments"]
    train = next(entry for entry in document["components"] if entry["name"] == "train_ddp")
    assert train["distribution"] == "pytorch"
    assert train["display_name"]
    assert train["path"].endswith("components/train_ddp/component.yaml")


def test_rows_align_columns_and_drop_empty_ones() -> None:
    assert text.aligned_rows([["a", "", "long"], ["bbb", "", "x"]]) == "  a    long\n  bbb  x"


def test_seconds_reads_like_a_clock() -> None:
    assert [duration_words(s) for s in (0.44, 65, 7380)] == ["0.4 s", "1 min 05 s", "2 h 03 min"]
