"""A step's command line is the SDK's to the character: it is made from the texts in the bodies that the SDK sends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import load_component, load_job

from allranks.azure.job_source import pipeline_of_job
from allranks.azure.python_target import read_python_pipeline
from allranks.azure.reader import job_builder
from allranks.catalogue import resolve
from allranks.cli.target import load_target
from allranks.local.planning import plan_pipeline
from allranks.spec import Pipeline, read_spec
from allranks.spec.expressions import render_command, single_reference

TYPED = {  # an input's type and what the YAML gives it, as it is written: as a default, and on the step
    "number": ("10", "10.0", '"10"', "1e-3", "1.0e-3", "0.00001", "0.1", "100000000000000000000", "0", "-3", '" 7 "'),
    "integer": ("7", "007", '"007"', "10.0", '"10.0"', "4294967295", "9007199254740993", "-3", "0"),
    "boolean": ("true", '"true"', "False", "no"),
    "string": ("1", "007", "1.10", '"1.0"', "true", '"true"', "yes", '" a b "', '""', "10.0", "1e-3", "1e3"),
}
CASES = {f"{type_[0]}{at}": (type_, text) for type_, texts in TYPED.items() for at, text in enumerate(texts)}
DECLARED = "\n".join(f"  {name}: {{type: {type_}, default: {text}}}" for name, (type_, text) in CASES.items())
GIVEN = ", ".join(f"{name}: {text}" for name, (_, text) in CASES.items())
BOUND = ", ".join(f'{name}: "${{{{parent.inputs.{name}}}}}"' for name in CASES)
COMMAND = (
    "  echo \\\n    " + " ".join(f"{name}=<${{{{inputs.{name}}}}}>" for name in CASES) + " $[[--none ${{inputs.none}}]]"
)
ENVIRONMENT = "environment: azureml:some:1"

FILES = {
    "echo.yaml": f"type: command\nname: echo\ncommand: |\n{COMMAND}\n{ENVIRONMENT}\n"
    f"inputs:\n{DECLARED}\n  none: {{type: number, optional: true}}\n",
    "inner.yaml": f"type: pipeline\nname: inner\ninputs:\n{DECLARED}\n"
    f"jobs:\n  bound: {{type: command, component: ./echo.yaml, inputs: {{{BOUND}}}}}\n"
    "  defaults: {type: command, component: ./echo.yaml}\n",
    "job.yaml": "type: pipeline\nsettings: {default_compute: azureml:c}\n"
    f"inputs: {{{GIVEN}}}\njobs:\n"
    "  defaults: {type: command, component: ./echo.yaml}\n"
    f"  given: {{type: command, component: ./echo.yaml, inputs: {{{GIVEN}}}}}\n"
    f"  bound: {{type: command, component: ./echo.yaml, inputs: {{{BOUND}}}}}\n"
    "  within: {type: pipeline, component: ./inner.yaml}\n"
    f"  within_given: {{type: pipeline, component: ./inner.yaml, inputs: {{{GIVEN}}}}}\n"
    f"  in_place: {{type: command, {ENVIRONMENT}, command: 'echo ${{{{inputs.a}}}} ${{{{inputs.b}}}}',"
    " inputs: {a: 10, b: 1.50}}\n",
    "of_component.yaml": f"type: pipeline\ncomponent: ./inner.yaml\ninputs: {{{GIVEN}}}\n",
    "own.py": """
from pathlib import Path
from azure.ai.ml import Input, command, load_component
from azure.ai.ml.dsl import pipeline

here = Path(__file__).parent
inline = command(
    name="inline",
    command="echo ${{inputs.x}} ${{inputs.y}} ${{inputs.z}} ${{inputs.w}} ${{inputs.v}}",
    inputs={"x": Input(type="number", default=10), "y": 10, "z": 1e-5, "w": True, "v": Input(type="string")},
    environment="azureml:some:1",
)

@pipeline
def innermost(rate: Input(type="number") = 10, count: float = 3):
    inline(x=rate, y=2, z=count, v="1.0")

@pipeline
def own(rate: Input(type="number") = 10, count: int = 7, flag: bool = True, text: str = "1.0", whole: float = 4):
    load_component(here / "echo.yaml")(n0=rate, n1=10, n2=10.0, n3=whole, i0=count, i1="007", b0=flag, s0=text, s1=1)
    inline(x=rate, y=count, z=1, w=flag, v=text)
    innermost()
    innermost(rate=10, count=whole)

sent = own(rate=20, whole=20, count=20)
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lines")
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


def commands_sent(job: Any) -> dict[str, str]:
    """The command line of every step, from the bodies that the SDK sends: of the job, its nodes and their components."""
    body = job._to_rest_object().as_dict()["properties"]
    values = {name: one["value"] for name, one in body["inputs"].items()}
    return dict(_commands(job.component, body["jobs"], values, ""))


def _commands(pipeline: Any, nodes: Mapping[str, Any], known: Mapping[str, str], prefix: str) -> Any:
    for name, node in nodes.items():
        component = pipeline.jobs[name].component
        sent = component._to_rest_object().as_dict()["properties"]
        body = sent.get("componentSpec") or sent["component_spec"]
        given = {port: one["value"] for port, one in node.get("inputs", {}).items()}
        given = {port: _followed(value, known) for port, value in given.items()}
        defaults = {port: one["default"] for port, one in body.get("inputs", {}).items() if "default" in one}
        values = {**defaults, **{port: value for port, value in given.items() if value is not None}}
        if "jobs" in body:
            yield from _commands(component, body["jobs"], values, f"{prefix}{name}.")
        else:
            yield prefix + name, render_command(body["command"], values, {})


def _followed(value: str, known: Mapping[str, str]) -> str | None:
    reference = single_reference(value)
    return value if reference is None else known.get(reference.name)


def commands_here(pipeline: Pipeline) -> dict[str, str]:
    """The command line of every step of a local run."""
    return {name: step.command({}, {}) for name, step in plan_pipeline(pipeline).steps.items()}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["job.yaml", "of_component.yaml"])
def test_yaml(folder: Path, file: str) -> None:
    job = load_job(folder / file)
    of_job = commands_here(pipeline_of_job(job, resolve))
    assert commands_here(read_spec(folder / file)) == commands_sent(job) == of_job


def test_a_component_and_a_pipeline_component_by_themselves(folder: Path) -> None:
    (expected,) = set(commands_sent(load_component(folder / "inner.yaml")()._to_job()).values())
    for file in ("inner.yaml", "echo.yaml"):
        assert set(commands_here(load_target(str(folder / file))).values()) == {expected}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["own", "sent"])
def test_python(folder: Path, function: str) -> None:
    pipeline = read_python_pipeline(f"{folder / 'own.py'}:{function}")
    assert commands_here(pipeline) == commands_sent(job_builder(folder / "own.py", function)({}))
