"""How a fault is written: what is read of it, and what is refused with the rule and an example."""

from __future__ import annotations

import pytest

from allranks.drill.faults import parse_fault
from allranks.errors import UsageError


@pytest.mark.parametrize(
    ("action", "text", "written"),
    [
        ("kill", "rank=1@step=40", "rank=1@step=40"),
        ("kill", "train:rank=1@step=040", "train:rank=1@step=40"),
        ("kill", "outer.train-2:node=0@1.5s", "outer.train-2:node=0@1.5s"),
        ("kill", "engine@20s", "engine@20s"),
        ("kill", "train:engine@50%", "train:engine@50%"),
        ("stop", "node=3@99.5%", "node=3@99.5%"),
    ],
)
def test_what_is_written_is_read(action: str, text: str, written: str) -> None:
    assert str(parse_fault(action, text)) == written


@pytest.mark.parametrize(
    ("action", "text", "message"),
    [
        *(
            ("kill", text, "is not [STEP:]rank=N@WHEN or node=N@WHEN, or engine@WHEN")
            for text in (
                *("rank=1", "rank1@10s", "rank=-1@10s", "rank=1@", "rank=1@10", "rank=1@step=-4", "rank=1@step=0"),
                *("rank=1@nans", "rank=1@100%", "rank=1@10s; rm -rf /", "rank=1:3x@10s"),
                *("launcher=0@10s", "rank=1@checkpoint", "rank=1@save"),
            )
        ),
        ("stop", "engine@10s", "the engine can only be killed"),
        ("stop", "rank=1", "is not [STEP:]rank=N@WHEN or node=N@WHEN."),
    ],
)
def test_what_is_no_fault_is_refused(action: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_fault(action, text)
    assert message in raised.value.message
    assert raised.value.hint
