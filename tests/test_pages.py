"""What is made from other files is current, and what the components' pages tell to write works as it stands there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.cli.show_document import example_inputs
from allranks.spec import check_document, read_component, read_spec
from tools import pages, renew

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_nothing_is_stale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["renew", "--check"])
    assert (renew.main(), capsys.readouterr().out) == (0, ""), "renew them with: make renew"


def test_a_check_names_what_is_stale_or_left_over_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new, present = ROOT / "docs/components/new.md", {page.name for page in (ROOT / "docs/components").glob("*.md")}
    monkeypatch.setattr(sys, "argv", ["renew", "--check"])
    monkeypatch.setattr(renew, "renew_tree", lambda *_, **__: [])
    monkeypatch.setattr(renew, "made_files", lambda: {new: "text"})
    assert renew.main() == 1
    assert capsys.readouterr().out.split() == [f"docs/components/{name}" for name in ["new.md", *sorted(present)]]
    assert {page.name for page in new.parent.glob("*.md")} == present


def test_the_table_stays_between_its_marks() -> None:
    page = (ROOT / "docs" / "sizes.md").read_text()
    other = renew.with_table(page, "sizes", "| another |")
    assert "| another |" in other
    assert "Standard_ND40rs_v2" not in other
    assert other.startswith(page[:200])


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_a_page_says_everything_that_the_yaml_does(name: str) -> None:
    component = read_component(catalogue.component_files()[name])
    page = pages.component_page(component)
    for port in (*component.inputs.values(), *component.outputs.values()):
        assert f"| `{port.name}` |" in page
        assert " ".join(port.description.split()).replace("|", "\\|") in page
    for choice in (choice for port in component.inputs.values() for choice in port.enum):
        assert f"`{choice}`" in page


@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_the_yaml_of_a_page_is_a_sound_step(name: str, tmp_path: Path) -> None:
    component = read_component(catalogue.component_files()[name])
    inputs = "\n".join(f"  {port.name}: {{type: {port.type}}}" for port in example_inputs(component.inputs))
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"type: pipeline\n{'inputs:' if inputs else ''}\n{inputs}\n{pages.yaml_step(component)}")
    assert check_document(read_spec(file, resolve=catalogue.resolve)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.COMPONENTS)
def test_the_python_of_a_page_makes_the_same_step(name: str, tmp_path: Path) -> None:
    from azure.ai.ml import Input

    component = read_component(catalogue.component_files()[name])
    file = tmp_path / "page.py"
    file.write_text(pages.python_step(component))
    scope: dict[str, object] = {"__name__": "page", "__file__": str(file)}
    exec(compile(file.read_text(), file, "exec", dont_inherit=True), scope)  # noqa: S102 -- the page's code is what is tested
    given = {p.name: Input(type=p.type, path="azureml:x:1") for p in example_inputs(component.inputs)}
    job = scope["my_pipeline"](**given)  # type: ignore[operator]
    (step,) = job.jobs.values()
    assert step.component.name == name
    assert (step.resources.instance_count if component.distribution else 2) == 2


def test_the_command_of_a_page_names_what_has_to_be_given() -> None:
    component = read_component(catalogue.component_files()["train_tf_multiworker"])
    assert (
        pages._local_command(component)
        == "allranks run train_tf_multiworker data=DATA --scale train_tf_multiworker=2x1"
    )
