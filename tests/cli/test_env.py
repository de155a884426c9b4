"""`allranks env`, and which interpreter runs a step."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.cli.main import main
from allranks.errors import CannotRunHereError
from allranks.local import environments, requirements


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment ``compare`` that only asks for what cannot be here."""
    folder = tmp_path / "compare"
    folder.mkdir()
    (folder / "environment.yaml").write_text("name: allranks-compare\n")
    (folder / "requirements.txt").write_text("no-such-package>=1  # never\n")
    monkeypatch.setattr(catalogue, "environments", lambda: {"compare": folder / "environment.yaml"})
    return folder


def test_list_names_every_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["env", "list", "--json", "--runs-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)["environments"]
    assert [each["name"] for each in found] == list(catalogue.ENVIRONMENTS)
    assert not any(each["built"] for each in found)


def test_an_unknown_environment_is_refused_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "horovd"]) == 2
    assert "'horovd' is no environment (did you mean 'horovod'?)" in capsys.readouterr().err


def test_list_names_what_lacks_without_its_versions(
    nothing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", ("compare",))
    assert main(["env", "list", "--runs-dir", str(tmp_path)]) == 0
    line, *rest = capsys.readouterr().out.splitlines()
    assert line.split(maxsplit=1) == ["compare", "not built, and the current Python lacks no-such-package"]
    assert "allranks env build NAME" in rest[-1]


def test_check_says_what_is_lacking_and_the_next_command(
    nothing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "check", "compare", "--runs-dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "no-such-package>=1 (not installed)" in out
    assert "allranks env build compare" in out


def test_a_step_whose_environment_is_neither_built_nor_satisfied_is_refused(nothing: Path, tmp_path: Path) -> None:
    from allranks.spec import read_component

    component = read_component(Path(__file__).parents[2] / "components" / "compare_models" / "component.yaml")
    with pytest.raises(CannotRunHereError) as caught:
        requirements.choose_interpreters({"compare": component}, tmp_path)
    assert "allranks env build compare" in caught.value.hint


def test_all_environments_that_lack_something_are_named_at_once(
    nothing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from allranks.spec import read_component

    places = {"compare": nothing / "environment.yaml", "pytorch": nothing / "environment.yaml"}
    monkeypatch.setattr(catalogue, "environments", lambda: places)
    steps = {
        name: read_component(Path(__file__).parents[2] / "components" / name / "component.yaml")
        for name in ("compare_models", "train_ddp", "prepare_data")
    }
    with pytest.raises(CannotRunHereError) as caught:
        requirements.choose_interpreters(steps, tmp_path)
    assert [line.split(" asks")[0] for line in caught.value.message.splitlines()] == [
        "compare_models: the environment 'compare'",
        "train_ddp, prepare_data: the environment 'pytorch'",
    ]
    assert "allranks env build compare && allranks env build pytorch" in caught.value.hint


@pytest.mark.slow
def test_a_step_runs_in_the_environment_that_is_built(nothing: Path, tmp_path: Path) -> None:
    from allranks.spec import read_component

    (nothing / "requirements.txt").write_text("pip\n")
    python = environments.build(tmp_path, "compare")
    assert python != Path(sys.executable)
    assert environments.interpreter(tmp_path, "compare") == python
    component = read_component(Path(__file__).parents[2] / "components" / "compare_models" / "component.yaml")
    assert requirements.choose_interpreters({"compare": component}, tmp_path).pythons == {"compare": python}
    (nothing / "requirements.txt").write_text("pip\nsetuptools\n")
    assert environments.interpreter(tmp_path, "compare") is None, "what was built is not what is asked for now"


def test_one_build_of_tensorflow_stands_for_the_other(tmp_path: Path) -> None:
    (tmp_path / "tensorflow-2.20.0.dist-info").mkdir()
    (tmp_path / "tensorflow-2.20.0.dist-info" / "METADATA").write_text("Name: tensorflow\nVersion: 2.20.0\n")
    file = tmp_path / "requirements.txt"
    file.write_text("tensorflow-cpu>=2.19\n")
    assert requirements.unmet(file, tmp_path) == []
    file.write_text("tensorflow-cpu>=2.21\n")
    assert requirements.unmet(file, tmp_path) == ["tensorflow-cpu>=2.21 (2.20.0 is installed)"]
