"""Every text on docs/errors.md is one that the code still says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text()
TEXTS = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)


def said() -> Iterator[str]:
    """Every text of the code, with `…` for what is put in."""
    for folder in ("allranks", "shared", "components"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


@pytest.fixture(scope="module")
def every() -> list[str]:
    return list(said())


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_the_code_still_says_it(text: str, every: list[str]) -> None:
    pattern = re.compile(".*".join(re.escape(part.strip()) for part in text.strip("…").split("…")), re.DOTALL)
    assert any(pattern.search(one) for one in every)


def test_the_page_was_read() -> None:
    assert len(TEXTS) > 20
