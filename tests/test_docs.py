"""The pages and the set-up files say nothing that the code does not."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from allranks import catalogue
from allranks.cli.main import VERBS
from allranks.spec import read_component
from allranks.spec.budget import Budget
from shared.data.formats.file_format import ReadBudget

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_verbs_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link
    for verb in re.findall(r"^allranks (\w+)|`allranks (\w+)", text, flags=re.MULTILINE):
        assert (verb[0] or verb[1]) in VERBS


def test_the_readme_s_make_targets_exist() -> None:
    named = set(
        re.findall(r"`?make ([a-z]+)", " ".join(page.read_text() for page in PAGES if page.name != "decisions.md"))
    )
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"run", "test", "check"} <= named & targets


def test_the_development_container_sets_up_what_make_does() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    target = container["postCreateCommand"].removeprefix("make .venv/")
    assert f"$(VENV)/{target}:" in (ROOT / "Makefile").read_text()


def test_the_constraints_pin_every_dependency_within_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in _requirements():
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is pinned to {version}"


def _requirements() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from (one for one in map(Requirement, group) if one.name != project["name"])


def test_the_page_of_limits_has_every_limit_as_it_is() -> None:
    text = (ROOT / "docs" / "limits.md").read_text()
    rows = [
        f"| `{one.name}` | {one.default:,} | {one.metadata['most']:,} | {one.metadata['what']} |"
        for one in (*fields(Budget), *fields(ReadBudget))
    ]
    assert [line for line in text.splitlines() if line.startswith("| `")] == rows


def test_what_the_designer_page_tells_to_drag_and_connect_is_there() -> None:
    page = (ROOT / "docs" / "designer.md").read_text()
    shown = {one.display_name: one for one in map(read_component, catalogue.component_files().values())}
    for title in re.findall(r"Drag \*(.+?)\*, \*(.+?)\* and \*(.+?)\*", page)[0]:
        assert title in shown
    assert shown["Prepare data"].inputs["dataset"].default == "digits"
    assert "data" in shown["Prepare data"].outputs
    for title in ("Train (PyTorch DDP)", "Evaluate"):
        assert shown[title].inputs["data"].required
    assert (
        shown["Evaluate"].inputs["model"].type == shown["Train (PyTorch DDP)"].outputs["model"].type == "mlflow_model"
    )
    listed = re.search(r"its values are (.+?)\.", page.replace("\n", " "))
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == {one.tags["allranks"] for one in shown.values()}
