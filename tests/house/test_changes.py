"""CONTRIBUTING says which files a change touches: they are there, and what is added is known in one place."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

import pytest

from allranks.cli.main import VERBS
from allranks.local.kinds import StepKind, step_kind
from allranks.spec.steps import STEP_KINDS
from tests.helpers import ROOT
from tests.house.test_walls import TREE

TABLE = (ROOT / "CONTRIBUTING.md").read_text().partition("| change |")[2].partition("\n\n")[0]
LISTS = sorted(set(re.findall(r"`([A-Z_]+)` of `([\w/]+\.py)`", TABLE)))

INTERFACES = {"kind", "launcher", "source", "file_format"}
"""Files beside the others that say what these have in common."""


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w<>]+/[\w<>/.]*)`", TABLE))))
def test_what_the_table_names_is_there(path: str) -> None:
    assert list(ROOT.glob(path.replace("<name>", "*"))) != []


@pytest.mark.parametrize(("name", "file"), LISTS)
def test_a_list_is_where_the_table_says(name: str, file: str) -> None:
    assigned = (
        node.targets if isinstance(node, ast.Assign) else [node.target]
        for node in TREE.parsed(file).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    )
    assert name in {target.id for targets in assigned for target in targets if isinstance(target, ast.Name)}


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted({file for _, file in LISTS if file.endswith("__init__.py")}))
def test_what_a_list_holds_is_known_there_alone(file: str) -> None:
    folder = PurePosixPath(file).parent
    held = {place for place in TREE.targets(file) if PurePosixPath(place).parent == folder}
    held = {place for place in held if PurePosixPath(place).stem not in INTERFACES}
    assert held
    outside = [place for place in TREE.files if not PurePosixPath(place).is_relative_to(folder)]
    known = {(one, place) for place in outside for one in TREE.targets(place, ("start", "call", "types")) & held}
    counterparts = {(one, place) for one, place in known if PurePosixPath(one).name == PurePosixPath(place).name}
    assert known - counterparts == set()


def test_every_kind_of_step_but_the_nested_one_is_run_by_a_file_of_its_name() -> None:
    files = {PurePosixPath(place).stem for place in TREE.files if place.startswith("allranks/local/kinds/")}
    runners = {name for name, reader in STEP_KINDS.items() if not reader.is_nested}
    assert files - {"__init__"} == runners
    assert all(isinstance(step_kind(name), StepKind) for name in runners)


def test_every_verb_is_a_file_and_the_other_way_round() -> None:
    files = {place for place in TREE.files if place.startswith("allranks/cli/")}
    made = {PurePosixPath(place).stem for place in files if {"HELP", "add_arguments", "run"} <= set(_defined(place))}
    assert made == set(VERBS)


def _defined(place: str) -> list[str]:
    named = [node.name for node in TREE.parsed(place).body if isinstance(node, ast.FunctionDef)]
    assigned = [target for node in TREE.parsed(place).body if isinstance(node, ast.Assign) for target in node.targets]
    return named + [target.id for target in assigned if isinstance(target, ast.Name)]
