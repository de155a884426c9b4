"""`allranks env`, and which interpreter runs a step."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.cli.build_phases import BuildPhases
from allranks.cli.main import main
from allranks.errors import CannotRunHereError
from allranks.local import requirements
from allranks.local.environments import library as environments
from allranks.local.plan import PlannedStep
from allranks.local.planning import plan_pipeline
from allranks.spec import read_pipeline


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment ``compare`` that only asks for what cannot be here."""
    folder = tmp_path / "compare"
    folder.mkdir()
    (folder / "environment.yaml").write_text("name: allranks-compare\n")
    (folder / "requirements.txt").write_text("no-such-package>=1  # never\n")
    (folder / "lock.txt").write_text("no-such-package==1.2\n")
    monkeypatch.setattr(catalogue, "environment_files", lambda: {"compare": folder / "environment.yaml"})
    return folder


def test_list_names_every_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["env", "list", "--json", "--runs-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)["environments"]
    assert [each["name"] for each in found] == list(catalogue.ENVIRONMENTS)
    assert not any(each["built"] for each in found)


def test_an_unknown_environment_is_refused_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "horovd"]) == 2
    assert "'horovd' is no environment (did you mean 'horovod'?)" in capsys.readouterr().err


def test_a_name_that_is_nothing_is_refused_with_all_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "build", "sklearn-1.6"]) == 2
    said = capsys.readouterr().err
    assert "'sklearn-1.6' is no environment (did you mean 'sklearn-1.5'?)" in said
    assert "Or give a pipeline" in said


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


def planned(*steps: str, pipeline: str = "compare_frameworks") -> dict[str, PlannedStep]:
    plan = plan_pipeline(read_pipeline(catalogue.pipeline_files()[pipeline]))
    return {name: plan.steps[name] for name in steps or plan.steps}


def refusal(steps: dict[str, PlannedStep], home: Path) -> CannotRunHereError:
    """Return the error with which these steps are refused."""
    with pytest.raises(CannotRunHereError) as caught:
        requirements.choose_interpreters(steps, home)
    return caught.value


def test_a_step_whose_environment_is_neither_built_nor_satisfied_is_refused(nothing: Path, tmp_path: Path) -> None:
    refused = refusal(planned("compare"), tmp_path)
    assert "allranks env build compare" in refused.hint


def test_all_environments_that_lack_something_are_named_at_once(
    nothing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"compare": nothing / "environment.yaml", "pytorch": nothing / "environment.yaml"}
    monkeypatch.setattr(catalogue, "environment_files", lambda: places)
    refused = refusal(planned("compare", "train_ddp", "prepare"), tmp_path)
    assert [line.split(" asks")[0] for line in refused.message.splitlines()] == [
        "compare: the environment 'compare'",
        "train_ddp, prepare: the environment 'pytorch'",
    ]
    assert refused.hint.endswith(": allranks env build compare pytorch")


def packages(folder: Path, **versions: str) -> Path:
    for name, version in versions.items():
        record = folder / f"{name}-{version}.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return folder


def has_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on the current interpreter has these packages and no other, and no mpirun."""
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    monkeypatch.setenv("PATH", str(folder))


LOCAL = {
    "torch": "2.13.0", "numpy": "2.4.6", "safetensors": "0.8.0", "scikit_learn": "1.9.1", "pillow": "13.0.0",
    "tokenizers": "0.23.3", "pyarrow": "25.0.1", "mlflow_skinny": "3.15.0", "matplotlib": "3.11.2", "jinja2": "3.1.6", "alembic": "1.20.1", "sqlalchemy": "2.1.9",
}  # fmt: skip


def test_all_that_local_lacks_for_a_pipeline_is_one_message_with_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mpirun alone was named, and the environments one error later; that evaluate needs TensorFlow came in the middle."""
    steps, texts, first = planned(), planned(pipeline="finetune_text"), planned(pipeline="image_classification")
    has_only(monkeypatch, packages(tmp_path / "here", **LOCAL))
    assert requirements.choose_interpreters(first, tmp_path).pythons == {}
    refused = refusal(steps, tmp_path)
    assert refused.hint == ("Build what is lacking, once: allranks env build horovod tensorflow evaluate compare"), (
        "Horovod's brings mpirun"
    )
    assert "evaluate' asks for keras>=3.11,<4 (not installed), tensorflow-cpu" in refused.message
    refused = refusal(texts, tmp_path)
    assert refused.hint.endswith(": allranks env build transformers evaluate")


def test_mpirun_is_asked_for_beside_what_has_to_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = planned()
    steps["train_ddp"] = replace(steps["train_ddp"], distribution="mpi")
    here = packages(tmp_path / "here", **LOCAL)
    has_only(monkeypatch, here)
    refused = refusal(steps, tmp_path)
    assert "\ntrain_ddp: the distribution mpi needs mpirun, which is not on this machine." in refused.message
    build, install = refused.hint.splitlines()
    assert build.endswith(" allranks env build horovod tensorflow evaluate compare")
    assert "apt-get install openmpi-bin" in install
    (here / "bin").mkdir()
    (here / "bin" / "mpirun").touch(mode=0o755)
    refused = refusal(steps, tmp_path)
    assert "mpirun" not in refused.message


def stands_built(home: Path, name: str, **versions: str) -> None:
    """An environment as a build leaves it, but for what no test of the choice reads."""
    folder = environments.environment_folder(home, name)
    packages(folder / "lib" / "python3.11" / "site-packages", **versions or {"pip": "26.3"})
    (folder / "built.txt").write_text(environments._digest(name, gpu=True))


def test_one_pipeline_never_mixes_two_torches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = planned(pipeline="image_classification")
    stands_built(tmp_path, "pytorch", torch="2.13.0+cpu")
    has_only(monkeypatch, packages(tmp_path / "here", **{**LOCAL, "torch": "2.15.0"}))
    refused = refusal(steps, tmp_path)
    assert refused.message == (
        "evaluate: the environment 'evaluate' has to be built too: torch is 2.15.0 in this Python and 2.13.0 in the"
        " environment 'pytorch'."
    )
    assert refused.hint.endswith(": allranks env build evaluate")
    has_only(monkeypatch, packages(tmp_path / "same", **LOCAL))
    assert set(requirements.choose_interpreters(steps, tmp_path).pythons) == {"prepare", "train"}


def test_an_environment_that_was_built_without_a_gpu_is_not_for_a_machine_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pytorch", "compare"):
        stands_built(tmp_path, name)
        (environments.environment_folder(tmp_path, name) / "built.txt").write_text(
            environments._digest(name, gpu=False)
        )
    monkeypatch.setattr(environments, "has_gpu", lambda: False)
    assert environments.built_interpreter(tmp_path, "pytorch") is not None
    monkeypatch.setattr(environments, "has_gpu", lambda: True)
    assert environments.built_interpreter(tmp_path, "pytorch") is None
    assert environments.built_interpreter(tmp_path, "compare") is not None, "it has no torch"


@pytest.mark.slow
def test_a_step_runs_in_the_environment_that_is_built(
    nothing: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (nothing / "requirements.txt").write_text("pip\n")
    (nothing / "lock.txt").write_text("--no-index\nno-such-package==1.2\n")
    build = ["env", "build", "compare", "--runs-dir", str(tmp_path)]
    assert main(build) == 2
    said = capfd.readouterr().err
    log = tmp_path / "environments" / "compare.log"
    assert (
        "error: compare: packages failed: Because no-such-package was not found in the provided package locations"
        in said
    )
    assert f"hint: All that was printed: {log}" in said
    assert "uv pip install" in log.read_text()
    assert environments.built_interpreter(tmp_path, "compare") is None
    (nothing / "lock.txt").write_text("--no-index\npip\n")
    assert main(["env", "build", "allranks-compare", *build[2:], "--json"]) == 0
    said = capfd.readouterr()
    (state,) = json.loads(said.out)["environments"]
    assert [line.partition(" (")[0] for line in said.err.splitlines()] == [
        "compare: virtual environment",
        "compare: packages",
    ]
    python = Path(state["python"])
    assert python != Path(sys.executable)
    assert environments.built_interpreter(tmp_path, "compare") == python
    assert requirements.choose_interpreters(planned("compare"), tmp_path).pythons == {"compare": python}
    assert main(build) == 0
    assert capfd.readouterr() == (f"built: {python}\n", ""), "what is built is kept"
    (nothing / "lock.txt").write_text("pip\nsetuptools\n")
    assert environments.built_interpreter(tmp_path, "compare") is None, "what was built is not what is asked for now"


def test_one_build_of_tensorflow_stands_for_the_other(tmp_path: Path) -> None:
    (tmp_path / "tensorflow-2.20.0.dist-info").mkdir()
    (tmp_path / "tensorflow-2.20.0.dist-info" / "METADATA").write_text("Name: tensorflow\nVersion: 2.20.0\n")
    file = tmp_path / "requirements.txt"
    file.write_text("tensorflow-cpu>=2.19\n")
    assert requirements.unmet_requirements(file, tmp_path) == []
    file.write_text("tensorflow-cpu>=2.21\n")
    assert requirements.unmet_requirements(file, tmp_path) == ["tensorflow-cpu>=2.21 (2.20.0 is installed)"]


def test_the_line_of_a_build_has_its_time_and_the_end_of_the_log_without_secrets(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    phases = BuildPhases("one", log)
    phases.tell("packages (2)")
    assert "one: packages (2) (0.0 s)" in str(phases.__rich__())
    log.write_text("$ uv pip install\nDownloading rain (3.0MiB) from https://me:hidden-word@index.test/\n\n$ next\n")
    shown = phases.__rich__()
    assert "Downloading rain (3.0MiB)" in shown.plain
    assert "hidden-word" not in shown.plain
    assert shown.no_wrap, "one line, however long"
