"""A pipeline written with the SDK's ``@pipeline`` reads as its YAML would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from allranks.azure import reader
from allranks.azure.python_target import read_python_document, read_python_pipeline
from allranks.catalogue import resolve
from allranks.errors import CannotRunHereError, UnknownNameError, UsageError
from allranks.spec.model import Component, Data, Literal, Output, Pipeline, Source, Sweep
from allranks.spec.needs import Distribution
from allranks.spec.read import pipeline_from, read_component

HERE = Path(__file__).parent
SAMPLES = HERE / "samples" / "pipelines.py"
ADD = HERE / "samples" / "add" / "component.yaml"


def target(function: str) -> str:
    return f"{SAMPLES}:{function}"


def read_here(function: str, values: Mapping[str, Literal] | None = None) -> Pipeline:
    """Do what the child does, in this process."""
    document = reader.read_function(SAMPLES, function, values or {})
    return pipeline_from(document, Source(file=None, base=SAMPLES.parent), resolve)


@pytest.fixture(scope="module")
def everything() -> Pipeline:
    return read_here("everything")


@pytest.mark.slow
@pytest.mark.usefixtures("started_reader")
def test_the_child_gives_the_same_in_a_folder_with_another_azure(
    everything: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    found = read_python_pipeline(target("everything"))
    assert (found.steps, found.inputs, found.outputs) == (everything.steps, everything.inputs, everything.outputs)
    assert capfd.readouterr() == ("", "users print when their module is imported\n"), "nothing of the SDK's"


def test_head_and_settings(everything: Pipeline) -> None:
    assert (everything.name, everything.display_name) == ("everything", "everything")
    assert everything.description == "All kinds of steps."
    assert everything.experiment_name == "samples"
    assert everything.tags == {"team": "a"}
    assert everything.settings.default_compute in ("cpu-cluster", "azureml:cpu-cluster")
    assert everything.settings.continue_on_step_failure is False
    assert everything.settings.force_rerun is True


def test_inputs_are_declared_with_their_defaults(everything: Pipeline) -> None:
    found = {name: (port.type, port.default) for name, port in everything.inputs.items()}
    assert found == {
        "data": ("uri_folder", None),
        "numbers.rate": ("number", 0.5),
        "numbers.start": ("integer", 2),
        "extra": ("uri_folder", None),
        "start": ("integer", 2),
        "mode": ("string", "fast"),
        "flag": ("boolean", True),
        "zero": ("number", 0.0),
    }
    assert everything.inputs["flag"].default is True
    assert everything.inputs["start"].min == 1
    assert everything.inputs["start"].max == 5
    assert everything.inputs["start"].description == "Where to start."
    assert everything.inputs["mode"].enum == ("fast", "exact")
    assert [name for name, port in everything.inputs.items() if port.required] == ["data"]


def test_a_nested_pipeline_keeps_its_own_bindings(everything: Pipeline) -> None:
    step = everything.steps["first"]
    assert isinstance(step.component, Pipeline)
    assert step.outputs == {"result": "${{parent.outputs.result}}"}
    add = step.component.steps["add"]
    assert add.inputs == {"data": "${{parent.inputs.data}}", "start": "${{parent.inputs.start}}", "rate": 0.25}
    assert add.resources.nodes == "${{parent.inputs.start}}"
    assert add.component == read_component(ADD)


def test_the_settings_of_a_step(everything: Pipeline) -> None:
    step = everything.steps["second"]
    assert step.inputs["data"] == Data("azureml:numbers:1", "uri_folder", "download")
    assert step.inputs["start"] == "${{parent.inputs.numbers.start}}"
    assert step.inputs["extra"] == "${{parent.inputs.extra}}"
    assert "note" not in step.inputs
    assert step.environment_variables == {"START": "${{parent.inputs.start}}"}
    assert (step.timeout, step.display_name) == (300, "Second")
    assert step.compute in ("gpu-cluster", "azureml:gpu-cluster")
    assert step.outputs["model"] == "${{parent.outputs.model}}"
    assert isinstance(step.outputs["sum"], Output)
    assert step.outputs["sum"].mode == "upload"
    assert step.resources.nodes is None, "what the component says stands there alone"
    assert step.component == read_component(ADD)


def test_a_component_made_in_python(everything: Pipeline) -> None:
    step = everything.steps["third"]
    component = step.component
    assert isinstance(component, Component)
    assert step.inputs == {"first": "${{parent.jobs.first.outputs.result}}", "times": 4}
    assert component.code == ADD.parent
    assert component.distribution == Distribution("mpi", processes_per_node=2)
    assert (component.resources.nodes, component.resources.shm_size) == (2, "1g")
    assert component.environment.inline == "ubuntu:24.04"
    assert step.environment_variables == {"LEVEL": "1"}
    copied = everything.outputs["copied"]
    assert (copied.path, copied.asset_name, copied.asset_version) == (
        "azureml://datastores/d/paths/p",
        "registered",
        "3",
    )


@pytest.mark.slow
def test_what_the_sdk_shares_between_steps_shows_on_each_of_them() -> None:
    changed = read_here("changed")
    assert [changed.steps[name].resources.nodes for name in ("one", "two")] == [7, 7]
    assert changed.steps["one"].component == read_component(ADD)
    component = changed.steps["three"].component
    assert isinstance(component, Component)
    assert component.environment.reference == "azureml:other:2"
    assert component.version == "0.10"
    assert component.includes == (ADD.parent.parent / "shared_code",)
    original = read_component(ADD)
    assert (component.inputs, component.command) == (original.inputs, original.command)


@pytest.mark.slow
def test_parameters_in_shared_objects() -> None:
    step = read_here("by_binding").steps["add"]
    assert step.resources.nodes == "${{parent.inputs.nodes}}"
    assert step.distribution == Distribution("pytorch", processes_per_node="${{parent.inputs.nodes}}")


@pytest.mark.slow
def test_values_of_the_caller() -> None:
    small = read_python_pipeline(target("small"), {"start": 5, "data": str(ADD.parent), "add.rate": 3})
    assert small.inputs["start"].default == 5
    assert small.inputs["data"].default == Data(str(ADD.parent), "uri_folder")


@pytest.mark.slow
def test_a_parameter_of_the_function_itself() -> None:
    assert len(read_here("repeated").steps) == 1
    assert len(read_here("repeated", {"steps": "3"}).steps) == 3


@pytest.mark.slow
def test_a_job_that_was_built_in_the_module() -> None:
    built = read_here("built")
    assert built.inputs["start"].default == 3
    assert built.inputs["data"].default == Data(str(ADD.parent), "uri_folder")


@pytest.mark.slow
def test_a_relative_path_starts_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numbers").mkdir()
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(SAMPLES, tmp_path)
    small = read_python_pipeline(f"{relative}:small", {"data": "./numbers"})
    assert small.inputs["data"].default == Data(str(tmp_path / "numbers"), "uri_folder")


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


WRONG: list[tuple[str, type[Exception], list[str]]] = [
    ("pipelines", UsageError, ["FILE.py:FUNCTION"]),
    (f"{SAMPLES}:", UsageError, ["FILE.py:FUNCTION"]),
    (f"{HERE}/nowhere.py:main", UnknownNameError, ["nowhere.py"]),
    (target("smal"), UnknownNameError, ["no function 'smal'", "small"]),
    (target("zzzzzz"), UnknownNameError, ["everything, small, changed"]),
    (target("not_a_pipeline"), UsageError, ["is no pipeline: it is a dict"]),
    (target("failing"), UsageError, ["pipelines.py:", "failing() failed: ValueError: no such luck"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "kind", "parts"), WRONG, ids=[case[0].rpartition("/")[2] for case in WRONG])
def test_what_is_wrong_is_said(
    wrong: str, kind: type[Exception], parts: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught:
        read_python_pipeline(wrong)
    message = f"{caught.value} {getattr(caught.value, 'hint', '')}"
    assert all(part in message for part in parts), message
    assert "Traceback" not in message + capfd.readouterr().err


def in_child(file: str) -> None:
    read_python_document(f"{file}:main")


def here(file: str) -> None:
    reader.read_function(Path(file), "main", {})


def test_a_module_that_cannot_be_imported_is_named_with_its_line(tmp_path: Path) -> None:
    for text, said, read in (
        (
            "x = 1\nraise RuntimeError('so it goes')",
            "broken.py:2: cannot be imported: RuntimeError: so it goes",
            in_child,
        ),
        ("x = 1\n\ndef f(:", "broken.py:3: cannot be imported: SyntaxError", here),
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_module_anywhere'", here),
        ("import sys\nsys.exit('goodbye')", "SystemExit: goodbye", here),
        ("import os\nos._exit(3)", "its process ended with 3", in_child),
    ):
        file = write(tmp_path / "broken.py", text)
        with pytest.raises(UsageError, match=r"broken\.py") as caught:
            read(file)
        assert said in str(caught.value)


def test_without_the_sdk_the_way_to_install_it_is_named(tmp_path: Path) -> None:
    """A folder called azure without ai.ml in it hides the SDK, as if it were not installed."""
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure" / "__init__.py").touch()
    child = "import sys; from allranks.azure import python_target; python_target.read_python_document(sys.argv[1])"
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}:{HERE.parents[1]}"}
    done = subprocess.run(
        [sys.executable, "-c", child, target("small")], env=environ, capture_output=True, text=True, check=False
    )
    assert CannotRunHereError.__name__ in done.stderr
    assert "needs the Azure ML SDK" in done.stderr


@pytest.mark.slow
def test_sweeps() -> None:
    search, grid = (read_here("tuned").steps[name] for name in ("search", "grid"))
    assert search.sweep == Sweep(
        "sobol",
        {
            "start": {"type": "choice", "values": [1, 2]},
            "rate": {"type": "loguniform", "min_value": -3.0, "max_value": -1.0},
        },
        ("minimize", "sum"),
        {"max_total_trials": 6, "max_concurrent_trials": 3, "timeout": 600, "trial_timeout": 60},
        {
            "type": "truncation_selection",
            "evaluation_interval": 2,
            "delay_evaluation": 4,
            "truncation_percentage": 20,
        },
        seed=4,
    )
    assert search.inputs == {"data": "${{parent.inputs.data}}", "mode": "${{parent.inputs.mode}}"}
    assert search.resources.nodes == 2
    assert search.component == read_component(ADD)
    assert grid.sweep is not None
    assert (grid.sweep.algorithm, grid.sweep.early_termination) == ("grid", None)
    assert grid.inputs == {"data": "${{parent.jobs.search.outputs.sum}}", "rate": 0.5}
    assert isinstance(grid.component, Component)
    assert grid.component.distribution is not None
    assert grid.component.distribution.processes_per_node == 3, "a sweep's trial is where this is kept"
