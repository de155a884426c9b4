"""Whatever a document holds, the answer is a document or a list of problems, never a traceback."""

from __future__ import annotations

import copy
import random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks.errors import Problem, SpecError
from allranks.spec import Source, check_document, component_from, pipeline_from
from allranks.spec.document import parse_yaml, read_yaml

ODD = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "${{parent.inputs.n}}",
    "${{",
    "azureml:x:1",
    [],
    [1, {}],
    {},
    {"type": 5},
    {"path": []},
]
PIPELINE = """\
type: pipeline
inputs: {n: 3, rows: {type: uri_folder, path: .}, kind: {type: string, enum: [a, b], default: a}}
outputs: {best: {mode: upload}}
settings: {default_compute: azureml:c, force_rerun: true}
jobs:
  a:
    type: command
    command: echo ${{inputs.n}} $[[${{inputs.rows}}]]
    environment: {image: ubuntu}
    inputs: {n: "${{parent.inputs.n}}", rows: {path: "${{parent.inputs.rows}}"}}
    outputs: {o: {type: uri_file}}
    resources: {instance_count: 2, shm_size: 2g, properties: {a: {b: c}}}
    distribution: {type: tensorflow, worker_count: 2}
    limits: {timeout: 5}
  b:
    component: {type: command, name: b, command: "x '${{inputs.p}}'", environment: "azureml:e:1", code: ., additional_includes: [x],
      inputs: {p: {type: integer, min: 1, max: 5, default: 2}, d: {type: uri_file, optional: true}}, outputs: {m: {type: mlflow_model}}}
    inputs: {p: 3, d: "${{parent.jobs.a.outputs.o}}"}
    outputs: {m: "${{parent.outputs.best}}"}
    environment_variables: {A: "1"}
  c:
    type: sweep
    trial: {type: command, command: "x ${{inputs.p}}", environment: "azureml:e:1", inputs: {p: {type: number}}}
    search_space: {p: {type: choice, values: [1, 2]}}
    objective: {goal: minimize, primary_metric: loss}
    limits: {max_total_trials: 2}
    sampling_algorithm: {type: random}
    early_termination: {type: bandit}
  d: {type: pipeline, component: {type: pipeline, inputs: {q: {type: integer}}, jobs: {e: {command: x, environment: "azureml:e:1"}}}, inputs: {q: 1}}
"""


def _places(data, path=()):
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _changed(data, chance: random.Random):
    data = copy.deepcopy(data)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice([path for path in _places(data) if path])
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        action = chance.choice(["odd", "odd", "rename", "remove"])
        if action == "odd" or isinstance(holder, list):
            holder[path[-1]] = copy.deepcopy(chance.choice(ODD))
        elif action == "rename":
            holder[str(path[-1]) + "x"] = holder.pop(path[-1])
        else:
            del holder[path[-1]]
    return data


def _answer(read) -> list[Problem]:
    try:
        return check_document(read(), {"n": "4"})
    except SpecError as error:
        return list(error.problems)


@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_changed_pipelines(tmp_path_factory, chance):
    document = _changed(yaml.safe_load(PIPELINE), chance)
    source = Source(None, tmp_path_factory.getbasetemp())
    assert all(problem.message for problem in _answer(lambda: pipeline_from(document, source)))


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_changed_components(tmp_path_factory, chance):
    document = _changed(yaml.safe_load(PIPELINE)["jobs"]["b"]["component"], chance)
    source = Source(None, tmp_path_factory.getbasetemp())
    assert all(problem.message for problem in _answer(lambda: component_from(document, source)))


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_changed_texts(tmp_path_factory, chance):
    characters = list(PIPELINE)
    for _ in range(chance.randint(1, 5)):
        characters[chance.randrange(len(characters))] = chance.choice("\t:-{}[]&*!|>'\"%@`#\n x\0")
    path = tmp_path_factory.getbasetemp() / "x.yaml"
    assert all(one.message for one in _answer(lambda: pipeline_from(*parse_yaml("".join(characters), path))))


def test_deep_nesting(tmp_path):
    (tmp_path / "x.yaml").write_text("a: " + "[" * 2000 + "]" * 2000)
    with pytest.raises(SpecError, match="nested too deeply"):
        read_yaml(tmp_path / "x.yaml")
