"""How a fault is written: what is read of it, and what is refused with the rule and an example."""

from __future__ import annotations

import pytest

from allranks.drill.faults import parse_fault, parse_full_disk
from allranks.errors import UsageError


@pytest.mark.parametrize(
    ("action", "text", "written"),
    [
        ("kill", "rank=1@step=40", "rank=1@step=40"),
        ("kill", "train:rank=1@step=040", "train:rank=1@step=40"),
        ("kill", "outer.train-2:node=0@1.5s", "outer.train-2:node=0@1.5s"),
        ("kill", "engine@20s", "engine@20s"),
        ("kill", "train:engine@50%", "train:engine@50%"),
        ("kill", "train:launcher=1@step=40", "train:launcher=1@step=40"),
        ("stop", "rank=3@checkpoint", "rank=3@checkpoint"),
        ("stop", "node=1@save", "node=1@save"),
        ("slow", "rank=1:10x", "rank=1:10x@0s"),
        ("slow", "train:node=1:2.5x@10s", "train:node=1:2.5x@10s"),
    ],
)
def test_what_is_written_is_read(action: str, text: str, written: str) -> None:
    assert str(parse_fault(action, text)) == written


def test_how_long_a_disk_is_full_is_read() -> None:
    assert str(parse_full_disk("train:5s@50%")) == "train:5s@50%"
    for text in ("5@50%", "0s@50%", "5s", "rank=1@5s"):
        with pytest.raises(UsageError, match="is not"):
            parse_full_disk(text)


@pytest.mark.parametrize(
    ("action", "text", "message"),
    [
        ("kill", "rank=1", "does not say when"),
        ("kill", "rank1@10s", "is not [STEP:]rank=N@WHEN"),
        ("kill", "rank=-1@10s", "is not [STEP:]rank=N@WHEN"),
        ("kill", "rank=1@", "is not [STEP:]rank=N@WHEN"),
        ("kill", "rank=1@10", "'10' is no moment"),
        ("kill", "rank=1@step=-4", "'step=-4' is no moment"),
        ("kill", "rank=1@step=0", "steps are counted from 1"),
        ("kill", "rank=1@nans", "'nans' is no moment"),
        ("kill", "rank=1@100%", "the step has ended"),
        ("kill", "rank=1:3x@10s", "has a factor, which only --slow takes"),
        ("stop", "engine@10s", "the engine can only be killed"),
        ("stop", "launcher=0@10s", "the launcher can only be killed"),
        ("slow", "launcher=0:3x", "the launcher can only be killed"),
        ("kill", "launcher@10s", "launcher=N@WHEN, engine@WHEN"),
        ("slow", "rank=1", "lacks how many times slower"),
        ("slow", "rank=1:1x", "1 times is not more than 1"),
        ("slow", "rank=1:101x", "101 times is not more than 1 and at most 100"),
        ("kill", "rank=1@10s; rm -rf /", "is not [STEP:]rank=N@WHEN"),
    ],
)
def test_what_is_no_fault_is_refused(action: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_fault(action, text)
    assert message in raised.value.message
    assert raised.value.hint
