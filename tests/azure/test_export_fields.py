"""``export`` loses nothing: the body of a job and that of its YAML, loaded again, are one; what cannot be is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import load_job

from allranks import catalogue
from allranks.azure.client import quiet_sdk
from allranks.azure.export import export_pipeline
from allranks.azure.losses import WRITTEN_FIELDS, schema_fields
from allranks.azure.python_target import read_python_pipeline
from allranks.azure.reader import job_builder
from allranks.errors import SpecError, UsageError
from tests.spec.mutations import write_files

SAMPLES = Path(__file__).parent / "samples"
PIPELINES = Path(__file__).parents[2] / "pipelines"

REFUSED = {
    "CommandComponentSchema": {"auto_delete_setting"},
    "PipelineComponentSchema": {"auto_delete_setting", "is_deterministic"},
    "EnvironmentSchema": {"auto_delete_setting"},
}
"""The fields that YAML cannot say, or that are lost when it is loaded."""

OF_THE_NAME = {"name", "version", "isAnonymous", "$schema", "client_component_hash"}
"""What Azure ML gives anew to a component that goes along with its job."""
ELSEWHERE = {"_source", "componentId", "trial"}
"""Where something was read from; and components, which are compared by themselves."""


def bodies(job: Any) -> dict[str, Any]:
    """What is sent: the job, and the component of every step, with paths that are absolute."""
    sent = job._to_rest_object().as_dict()
    found = {"": _compared(sent, job._base_path or Path.cwd(), ELSEWHERE)}
    return found | dict(_components(job.component, ""))


def _components(pipeline: Any, prefix: str) -> Any:
    for name, node in pipeline.jobs.items():
        component = node.trial if node.type == "sweep" else node.component
        sent = component._to_rest_object().as_dict()["properties"]
        yield prefix + name, _compared(sent, component.base_path, ELSEWHERE | OF_THE_NAME)
        if node.type == "pipeline":
            yield from _components(component, f"{prefix}{name}.")


def _compared(value: Any, base: Any, left_out: set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _compared(one, base, left_out) for key, one in value.items() if key not in left_out}
    if isinstance(value, list):
        return [_compared(one, base, left_out) for one in value]
    path = Path(base) / str(value)
    there = os.path.exists(path)  # noqa: PTH110 - False for a text too long for a path, where Path raises
    if isinstance(value, (str, Path)) and value not in ("", ".") and "/" in str(value) and there:
        return str(path.resolve())
    return str(value).removeprefix("azureml:") if isinstance(value, (str, Path)) else value


def through_yaml(file: Path, function: str, folder: Path) -> tuple[Any, Any]:
    """The job as Python builds it, and as the SDK loads what was exported."""
    with quiet_sdk():
        job = job_builder(file, function)({})
        output = folder / "out" / "job.yaml"
        output.parent.mkdir(exist_ok=True)
        for path, text in export_pipeline(f"{file}:{function}", output).items():
            path.write_text(text)
        return job, load_job(output)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "function"),
    [("all_fields.py", "full"), ("pipelines.py", "everything_built"), ("pipelines.py", "tuned_built")],
)
def test_every_field_arrives(file: str, function: str, tmp_path: Path) -> None:
    job, loaded = through_yaml(SAMPLES / file, function, tmp_path)
    ours, theirs = bodies(loaded), bodies(job)
    assert ours.keys() == theirs.keys()
    for name, sent in theirs.items():
        assert ours[name] == sent, name
    assert loaded._validate().error_messages == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(catalogue.PIPELINES))
def test_every_pipeline_of_the_library(name: str) -> None:
    file = PIPELINES / f"{name}.yaml"
    with quiet_sdk():
        sent = bodies(job_builder(file.with_suffix(".py"), name)({}))
        loaded = bodies(load_job(file))
    comments = " ".join(file.read_text().replace("\n  #", " ").split())
    for output in sent[""]["properties"]["outputs"].values():
        assert output.pop("description", "") in comments, "a job's outputs have no place for it"
    assert loaded == sent


KINDS_OF_STEPS = """
from pathlib import Path
from azure.ai.ml import Input, Output, load_component
from azure.ai.ml.data_transfer import copy_data
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.entities import ManagedIdentityConfiguration
from azure.ai.ml.parallel import RunFunction, parallel_run_function

HERE = Path(__file__).parent
score = load_component(HERE / "score.yaml")
TASK = RunFunction(
    code=str(HERE / "src"), entry_script="score.py", environment="azureml:numbers:1", program_arguments="--x 1",
    append_row_to="${{outputs.found}}",
)

@pipeline(default_compute="cpu")
def kinds(label: str = "cat"):
    rows = Input(type="uri_folder", path=str(HERE / "rows"))
    named = score(images=rows, label=label)
    named.mini_batch_size, named.compute, named.identity = 5, "gpu", ManagedIdentityConfiguration(client_id="x")
    built = parallel_run_function(
        name="built", inputs={"table": Input(type="uri_folder")}, outputs={"found": Output(type="uri_file")},
        input_data="${{inputs.table}}", instance_count=2, mini_batch_size="10kb", error_threshold=3, task=TASK,
        environment_variables={"LEVEL": "3"},
    )(table=rows)
    return {"scores": named.outputs.scores}

@pipeline(default_compute="cpu")
def changed_task(rows: Input(type="uri_folder")):
    one = score(images=rows)
    one.task = TASK

@pipeline(default_compute="cpu")
def copying(rows: Input(type="uri_folder")):
    copied = copy_data(
        name="copied", inputs={"one": Input(type="uri_folder")}, outputs={"all": Output(type="uri_folder")},
    )(one=rows)
    copied.compute = "adf"
"""


@pytest.fixture
def kinds_file(tmp_path: Path) -> Path:
    write_files(tmp_path)
    (tmp_path / "kinds.py").write_text(KINDS_OF_STEPS)
    return tmp_path / "kinds.py"


@pytest.mark.slow
def test_parallel_steps_arrive(kinds_file: Path, tmp_path: Path) -> None:
    job, loaded = through_yaml(kinds_file, "kinds", tmp_path)
    ours, theirs = bodies(loaded), bodies(job)
    assert ours.keys() == theirs.keys() == {"", "named", "built"}
    for name, sent in theirs.items():
        assert ours[name] == sent, name
    assert loaded._validate().error_messages == {}


@pytest.mark.slow
def test_a_task_that_a_step_has_of_its_own_is_refused(kinds_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="step one: task"):
        through_yaml(kinds_file, "changed_task", tmp_path)


@pytest.mark.slow
def test_a_step_that_allranks_does_not_know_is_refused(kinds_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="step copied is of type 'data_transfer', which allranks does not export"):
        through_yaml(kinds_file, "copying", tmp_path)
    with pytest.raises(SpecError, match="step 'copied' is of type 'data_transfer', which allranks neither runs nor"):
        read_python_pipeline(f"{kinds_file}:copying")


@pytest.mark.slow
def test_the_sample_sets_every_field_that_is_written() -> None:
    with quiet_sdk():
        job = job_builder(SAMPLES / "all_fields.py", "full")({})
    nodes = [*job.jobs.values(), *job.jobs["nested"].component.jobs.values()]
    said = str([{**body} for body in (bodies(job).values())]) + str([node._to_rest_object() for node in nodes])
    resources = next(schema for schema in WRITTEN_FIELDS if schema.__name__ == "JobResourceConfigurationSchema")
    for name in WRITTEN_FIELDS[resources] | {
        "comment",
        "services",
        "identity",
        "tags",
        "default_datastore",
        "force_rerun",
    }:
        camel = name.partition("_")[0] + "".join(part.capitalize() for part in name.split("_")[1:])
        assert f"'{name}'" in said or f"'{camel}'" in said, name


@pytest.mark.parametrize("schema", WRITTEN_FIELDS, ids=lambda schema: schema.__name__)
def test_a_field_that_a_newer_sdk_adds_fails_here(schema: type) -> None:
    assert schema_fields(schema) - WRITTEN_FIELDS[schema] == REFUSED.get(schema.__name__, set())


OTHERS = """
from all_fields import all_fields, full, inline, ADD
from azure.ai.ml import Input, load_component
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.entities._assets.auto_delete_setting import AutoDeleteSetting

@pipeline(default_compute="cpu-cluster")
def lossy(data: Input(type="uri_folder")):
    add = load_component(ADD)(data=data, start=1, rate=0.5)
    add.instance_count = 4
    copied = inline(first=add.outputs.sum, text="x")
    copied.component.auto_delete_setting = AutoDeleteSetting(condition="created_greater_than", value="30d")
"""


def test_what_yaml_cannot_say_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "others.py"
    file.write_text(f"import sys; sys.path.insert(0, {str(SAMPLES)!r})\n{OTHERS}")
    with pytest.raises(UsageError) as caught:
        export_pipeline(f"{file}:lossy", tmp_path / "lossy.yaml")
    for lost in ("step add: instance_count", "step copied, component: auto_delete_setting"):
        assert lost in caught.value.message
    assert not (tmp_path / "lossy.yaml").exists()


@pytest.mark.slow
def test_a_job_that_was_loaded_from_yaml_can_be_exported_again(tmp_path: Path) -> None:
    file = tmp_path / "again.py"
    yaml = PIPELINES / "image_classification.yaml"
    file.write_text(f"from azure.ai.ml import load_job\nagain = load_job({str(yaml)!r})\n")
    job, loaded = through_yaml(file, "again", tmp_path)
    assert bodies(loaded) == bodies(job)
