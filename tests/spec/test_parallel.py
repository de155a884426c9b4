"""What is wrong with a parallel step is said with its place, its rule and the next step; the SDK's rules are ours."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from allranks.errors import Problem, SpecError
from allranks.spec import check_document, read_spec
from allranks.spec.parallel import ParallelComponent, batch_size

STEP: dict = {
    "type": "parallel",
    "inputs": {"files": {"type": "uri_folder", "path": "./src"}, "model": "m"},
    "outputs": {"out": {"type": "uri_file"}},
    "input_data": "${{inputs.files}}",
    "mini_batch_size": "10kb",
    "retry_settings": {"max_retries": 0, "timeout": 5},
    "task": {
        "type": "run_function",
        "code": "./src",
        "entry_script": "score.py",
        "environment": "azureml:e:1",
        "program_arguments": "--model ${{inputs.model}}",
        "append_row_to": "${{outputs.out}}",
    },
}

# fmt: off
MISTAKES = [
    # place of the change, value (None takes the key out), where, what is said, whether the SDK refuses it too
    ("mini_batch_size", "5x", "mini_batch_size", "'5x' is no size: digits and at most kb, mb or gb.", True),
    ("mini_batch_size", "10kbkb", "mini_batch_size", "'10kbkb' is no size", True),
    ("mini_batch_size", "0", "mini_batch_size", "'0' is no size", False),
    ("mini_batch_size", 5, "mini_batch_size", 'Write mini_batch_size: "5".', True),
    ("mini_batch_size", "${{parent.inputs.no}}", "mini_batch_size", "the pipeline has no input 'no'.", False),
    ("error_threshold", "x", "error_threshold", "'x' is not a whole number.", True),
    ("mini_batch_size", "", "mini_batch_size", "'' is no size", True),
    ("environment_variables", {"LEVEL": 3}, "environment_variables.LEVEL", "is a number, and should be a text.", True),
    ("task.program_arguments", 5, "task.program_arguments", "is a number, and should be a text.", True),
    ("error_threshold", -2, "error_threshold", "-2 is below the minimum of -1.", False),
    ("mini_batch_error_threshold", -2, "mini_batch_error_threshold", "-2 is below the minimum of -1.", False),
    ("max_concurrency_per_instance", 0, "max_concurrency_per_instance", "0 is below the minimum of 1.", False),
    ("retry_settings", {"max_retries": -1}, "retry_settings.max_retries", "-1 is below the minimum of 0.", False),
    ("retry_settings", {"timeout": 300000}, "retry_settings.timeout", "300000 is above the maximum of 259200.", False),
    ("retry_settings", {"timout": 3}, "retry_settings.timout", "Did you mean 'timeout'?", False),
    ("logging_level", "WARN", "logging_level", "'WARN' is none of the logging levels.", True),
    ("partition_keys", "store", "partition_keys", "is a text, and should be a list.", True),
    ("input_data", None, "", "has no input_data.", False),
    ("input_data", "files", "input_data", "Write ${{inputs.NAME}}.", False),
    ("input_data", "${{inputs.fils}}", "input_data", "there is no input 'fils'. Did you mean 'files'?", False),
    ("input_data", "${{inputs.model}}", "input_data", "'model' is a string; only files and tables can be divided.", False),
    ("mini_batch_sise", "5", "mini_batch_sise", "Did you mean 'mini_batch_size'?", True),
    ("task", None, "", "has no task.", False),
    ("task.type", None, "task", "states no type.", True),
    ("task.type", "run_funktion", "task.type", "'run_funktion' is no type of a task. Did you mean 'run_function'?", True),
    ("task.type", "model", "task.type", "cannot run here: a task of type 'model'", False),
    ("task.environment", None, "task.environment", "has no environment, which Azure ML demands.", True),
    ("task.entry_script", None, "task", "has no entry_script.", False),
    ("task.entry_script", "scor.py", "task.entry_script", "there is no file 'scor.py'", False),
    ("task.entry_script", ".", "task.entry_script", "there is no file '.'", False),
    ("task.code", "./nowhere", "task.code", "there is no file or folder", True),
    ("task.append_row_to", "${{outputs.ot}}", "task.append_row_to", "there is no output 'ot'. Did you mean 'out'?", False),
    ("task.program_arguments", "--model ${{inputs.modle}}", "task.program_arguments", "Did you mean 'model'?", False),
    ("task.program_arguments", "--model 'a", "task.program_arguments", "a quote is opened and not closed.", False),
]
# fmt: on


@pytest.fixture
def written(tmp_path: Path):
    """Return a function that writes a pipeline of one parallel step with a change, and its path."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "score.py").touch()

    def write(place: str = "", value: object = None) -> Path:
        step = copy.deepcopy(STEP)
        *parents, key = place.split(".")
        inner = step[parents[0]] if parents else step
        inner.pop(key, None)
        if value is not None:
            inner[key] = value
        document = {"type": "pipeline", "settings": {"default_compute": "azureml:c"}, "jobs": {"score": step}}
        (tmp_path / "pipeline.yml").write_text(json.dumps(document))
        return tmp_path / "pipeline.yml"

    return write


def problems_at(path: Path) -> list[Problem]:
    """List what is wrong with a file."""
    try:
        return check_document(read_spec(path))
    except SpecError as error:
        return list(error.problems)


@pytest.mark.parametrize(("place", "value", "where", "said", "sdk"), MISTAKES)
def test_a_mistake_is_said_once_with_its_place(written, place, value, where, said, sdk):
    problems = problems_at(written(place, value))
    found = [one for one in problems if one.where == ".".join(filter(None, ("jobs.score", where)))]
    assert any(said in f"{one.message} {one.hint}" for one in found), problems
    assert len({one.message for one in found}) == len(found)


def test_a_sound_step_has_no_problem_and_the_sdk_takes_it(written):
    pytest.importorskip("azure.ai.ml")
    from azure.ai.ml import load_job

    path = written()
    assert problems_at(path) == []
    assert load_job(path)._validate().passed
    component = read_spec(path).steps["score"].component
    assert isinstance(component, ParallelComponent)
    assert (component.entry_script, component.append_row_to, component.settings.input_data) == (
        "score.py",
        "out",
        "files",
    )


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_what_the_sdk_refuses_is_refused(written):
    pytest.importorskip("azure.ai.ml")
    from azure.ai.ml import load_job

    for place, value, _, said, sdk in MISTAKES:
        path = written(place, value)
        try:
            refused = not load_job(path)._validate().passed
        except Exception:  # noqa: BLE001 the SDK raises of every kind
            refused = True
        assert refused == sdk, (place, value, said)


@pytest.mark.parametrize(
    ("text", "number"), [("10", 10), ("10kb", 10240), ("1MB", 2**20), ("2gb", 2**31), ("10 kb", None), ("kb", None)]
)
def test_sizes(text, number):
    assert batch_size(text) == number


def test_a_component_of_another_kind_is_refused(tmp_path):
    command = {"type": "command", "name": "c", "command": "ls", "environment": "azureml:e:1"}
    document = {"type": "pipeline", "jobs": {"score": {"type": "parallel", "component": command}}}
    (tmp_path / "p.yml").write_text(json.dumps(document))
    said = [f"{one.message} {one.hint}" for one in problems_at(tmp_path / "p.yml")]
    assert "is a command component on a step of type 'parallel'. Write type: command." in said
