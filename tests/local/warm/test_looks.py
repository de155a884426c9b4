"""What imports look at among the variables is known, whichever way they look."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from allranks.local.warm.looks import ReadVariables, has_looked

FROM_TQDM = "found = {key: value for key, value in os.environ.items() if key.startswith('TQDM_')}"


@pytest.mark.parametrize(
    ("look", "looks"),
    [
        (lambda: os.environ.get("PATH"), {"PATH"}),
        (lambda: os.getenv("NOT_THERE"), {"NOT_THERE"}),
        (lambda: "NOT_THERE" in os.environ, {"NOT_THERE"}),
        (lambda: os.environb.get(b"PATH"), {"PATH"}),
        (lambda: exec(FROM_TQDM, {"__name__": "tqdm.utils", "os": os}), {"TQDM_*"}),  # noqa: S102
        (lambda: exec(FROM_TQDM, {"__name__": "another", "os": os}), {"*"}),  # noqa: S102
        (lambda: list(os.environ), {"*"}),
        (lambda: list(os.environ.values()), {"*"}),
        (lambda: len(os.environ), set()),
    ],
)
def test_each_way_to_look(look: Callable[[], object], looks: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    holder: Any = os.environ
    recorder = ReadVariables(holder._data)
    with monkeypatch.context() as patched:
        patched.setattr(holder, "_data", recorder)
        patched.setattr(os.environb, "_data", recorder)
        look()
    assert {os.fsdecode(name) for name in recorder.looks} == looks


def test_who_copies_all_of_them_may_look_at_any(monkeypatch: pytest.MonkeyPatch) -> None:
    holder: Any = os.environ
    recorder = ReadVariables(holder._data)
    with monkeypatch.context() as patched:
        patched.setattr(holder, "_data", recorder)
        copied = os.environ.copy()
    assert has_looked({os.fsdecode(name) for name in recorder.looks}, "NOT_THERE")
    assert copied == dict(os.environ)


def test_a_look_at_those_that_begin_so_is_one_at_each_of_them() -> None:
    assert has_looked({"PATH", "TQDM_*"}, "TQDM_DISABLE")
    assert not has_looked({"PATH", "TQDM_*"}, "TQDM")
    assert not has_looked({"PATH"}, "PATH_INFO")
    assert has_looked({"*"}, "ANY")
