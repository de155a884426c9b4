"""Functions stay short, and a public name stands for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.house.test_walls import TREE

LONGEST = 60
"""Lines of a function, its docstring included."""

SHARE_OF_TWO = 0.10
"""Of all public top-level names, those that stand for two things."""


@pytest.mark.slow
def test_no_function_is_long() -> None:
    functions = (
        (place, node)
        for place in TREE.files
        for node in ast.walk(TREE.parsed(place))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = {f"{place}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 for place, node in functions}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST} == {}


def test_few_public_names_stand_for_two_things() -> None:
    where: dict[str, list[PurePosixPath]] = defaultdict(list)
    for place in TREE.files:
        for name in _public_names(TREE.parsed(place)):
            where[name].append(PurePosixPath(place))
    twice = {
        name: [*map(str, places)] for name, places in where.items() if len(places) > 1 and not _counterparts(places)
    }
    assert len(twice) < SHARE_OF_TWO * len(where), twice


def _public_names(module: ast.Module) -> Iterator[str]:
    """Functions, classes and constants that a file defines at its top level."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            targets = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            assigned = node.targets if isinstance(node, ast.Assign) else [node.target]
            targets = [target.id for target in assigned if isinstance(target, ast.Name)]
        else:
            targets = []
        yield from (name for name in targets if not name.startswith("_"))


def _counterparts(places: list[PurePosixPath]) -> bool:
    """Whether these are files of one name in sibling folders, or all of components."""
    siblings = len({place.name for place in places}) == len({place.parent.parent for place in places}) == 1
    return siblings or all(place.parts[0] == "components" for place in places)
