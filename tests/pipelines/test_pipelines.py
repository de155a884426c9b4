"""The library's pipelines: sound for the SDK, current as YAML, and in step with their components."""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import load_job

from allranks import catalogue
from allranks.azure import export, python_target
from allranks.azure.reader import read_function
from allranks.spec.check import check_document
from allranks.spec.expressions import find_references
from allranks.spec.model import Component, Data, Input, Pipeline
from allranks.spec.read import read_pipeline

FOLDER = Path(__file__).parents[2] / "pipelines"
SWEEP = ("search_space", "sampling_algorithm", "objective", "early_termination", "limits")
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
OWN_DEFAULTS = {
    "language_model": {"vocabulary", "sequence_length", "layers", "batch_size", "learning_rate"},
    "finetune_text": {"vocabulary", "batch_size", "learning_rate"},
}
"""Inputs that a pipeline gives another default than the component that they feed: here, what suits its sample."""


@pytest.fixture(scope="module", autouse=True)
def _read_in_this_process() -> Iterator[None]:
    """Build pipelines in this process, which has imported the SDK: a child process would import it for each."""

    def read(target: str, values: Mapping[str, Any] | None = None, *, whole: bool = False) -> dict[str, Any]:
        file, function = python_target.split_target(target)
        document = read_function(file, function, values or {}, whole=whole)
        return dict(json.loads(json.dumps(document)))

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(sys, "path", [*sys.path])  # which gets the pipelines' folder
        for module in (python_target, export):
            patch.setattr(module, "read_python_document", read)
        yield


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def in_python(name: str) -> Pipeline:
    return python_target.read_python_pipeline(f"{FOLDER / name}.py:{name}")


@pytest.fixture(scope="module")
def in_yaml(name: str) -> Pipeline:
    return read_pipeline(FOLDER / f"{name}.yaml", resolve=catalogue.resolve)


@pytest.fixture(scope="module")
def of_sdk(name: str) -> Any:
    """The job as a user of the SDK builds it."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


@pytest.mark.slow
def test_the_yaml_is_current(name: str) -> None:
    file = FOLDER / f"{name}.yaml"
    command = f"allranks export pipelines/{name}.py:{name} -o pipelines/{name}.yaml"
    assert export.export_pipeline(f"{FOLDER / name}.py:{name}", file) == {file: file.read_text()}, f"run: {command}"


@pytest.mark.slow
def test_the_sdk_accepts_both_and_would_send_the_same(name: str, of_sdk: Any) -> None:
    loaded = load_job(FOLDER / f"{name}.yaml")
    assert loaded._validate().error_messages == of_sdk._validate().error_messages == {}
    ours, theirs = (job._to_rest_object().as_dict()["properties"] for job in (loaded, of_sdk))
    assert ours["inputs"] == theirs["inputs"]
    for step in theirs["jobs"]:
        for key in ("inputs", "resources", "distribution", *SWEEP):
            assert ours["jobs"][step].get(key) == theirs["jobs"][step].get(key), (step, key)


@pytest.mark.slow
def test_python_and_yaml_are_the_same_to_us(in_python: Pipeline, in_yaml: Pipeline) -> None:
    assert in_yaml.steps == in_python.steps
    assert in_yaml.display_name == in_python.display_name
    assert in_yaml.experiment_name == in_python.experiment_name == in_python.name
    assert in_yaml.settings.default_compute is not None
    typed = [
        {name: (port.type, port.default, port.required) for name, port in p.inputs.items()}
        for p in (in_python, in_yaml)
    ]
    assert typed[0] == typed[1]
    assert {name: port.type for name, port in in_yaml.outputs.items()} == {
        name: port.type for name, port in in_python.outputs.items()
    }


def test_nothing_is_wrong_and_nothing_is_required(in_python: Pipeline, in_yaml: Pipeline) -> None:
    assert check_document(in_python, {}) == []
    assert check_document(in_yaml, {}) == []


def test_an_optional_folder_can_be_given(in_python: Pipeline, in_yaml: Pipeline) -> None:
    for pipeline in (in_python, in_yaml):
        of_files = in_python.inputs["dataset"].enum[1]  # the first one is built in; the YAML has no choices
        assert check_document(pipeline, {"data": Data(str(FOLDER)), "dataset": of_files}) == []


def test_steps_and_outputs_have_the_names_of_all_our_pipelines(in_python: Pipeline) -> None:
    if "train" in in_python.steps:
        assert list(in_python.steps) == ["prepare", "train", "evaluate"]
        assert list(in_python.outputs) == ["model", "report"]
    else:  # several of a kind
        assert {step.partition("_")[0] for step in in_python.steps} == {"prepare", "train", "evaluate", "compare"}


def test_nodes_and_processes_are_inputs(in_python: Pipeline) -> None:
    train = in_python.steps.get("train")
    if train is None or train.sweep is not None:
        pytest.skip("several trainers; or a sweep, whose trials run as their component says")
    assert train.resources.nodes == "${{parent.inputs.nodes}}"
    given = train.inputs.get("processes_per_node", train.distribution and train.distribution.processes_per_node)
    assert given == "${{parent.inputs.processes_per_node}}"
    # Two nodes show what a cluster is like; what has to be done in minutes on two cores has one.
    nodes = 1 if in_python.name in ("language_model", "finetune_text") else 2
    assert (in_python.inputs["nodes"].default, in_python.inputs["processes_per_node"].default) == (nodes, 2)


def test_inputs_say_what_the_components_say(in_python: Pipeline) -> None:
    """Type, range, choices, default and words are those of the port that an input feeds, so that none can drift."""
    compared = []
    for step in in_python.steps.values():
        assert isinstance(step.component, Component)
        for port, value in step.inputs.items():
            fed = [reference.name for reference in find_references(str(value)) if reference.scope == "parent.inputs"]
            if fed == [port] and port != "processes_per_node":
                own = port in OWN_DEFAULTS.get(in_python.name, ())
                ours, theirs = in_python.inputs[port], step.component.inputs[port]
                assert said(ours, own_default=own) == said(theirs, own_default=own), port
                compared.append(port)
    searched = [name for step in in_python.steps.values() if step.sweep for name in step.sweep.space]
    assert {"dataset", "epochs", "seed"} <= {*compared, *searched}


def said(port: Input, *, own_default: bool = False) -> tuple[Any, ...]:
    default = () if own_default else (port.default, port.optional)
    return port.type, *default, port.enum, port.min, port.max, " ".join(port.description.split())
