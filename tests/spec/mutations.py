"""Documents with one mistake each, made by rule from sound ones: what lint and the SDK are compared over."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from allranks import library
from tests.spec.mutated_kinds import KINDS

_SCHEMAS = "https://azuremlschemas.azureedge.net/latest"
FILES = {
    "conda.yaml": "name: own\ndependencies: [python=3.11, {pip: [numpy]}]\n",
    "docker/Dockerfile": "FROM ubuntu\n",
    "rows/rows.csv": "a,b\n1,2\n",
    "src/train.py": "",
    "src/prepare.py": "",
    "other.py": "",
    "prepare.yaml": f"""\
$schema: {_SCHEMAS}/commandComponent.schema.json
type: command
name: prepare
version: 3
display_name: Prepare
inputs:
  raw: {{type: uri_folder, optional: true, mode: download}}
  rows: {{type: integer, default: 100, min: 1, max: 1000}}
outputs:
  data: {{type: uri_folder, mode: rw_mount}}
  table: {{type: uri_file}}
code: ./src
environment:
  build: {{path: ./docker, dockerfile_path: Dockerfile}}
command: python prepare.py ${{{{inputs.rows}}}} $[[${{{{inputs.raw}}}}]] ${{{{outputs.data}}}} ${{{{outputs.table}}}}
""",
    "train.yaml": f"""\
$schema: {_SCHEMAS}/commandComponent.schema.json
type: command
name: train
version: "1.0.2"
display_name: Train a model
description: Fits a model.
tags: {{kind: example}}
properties: {{owner: us}}
is_deterministic: false
inputs:
  data: {{type: uri_folder, description: Rows.}}
  epochs: {{type: integer, default: 10, min: 0, max: 10000, description: Passes.}}
  rate: {{type: number, default: 0.1, min: 0.0}}
  flag: {{type: boolean, default: false}}
  schedule: {{type: string, enum: [cosine, constant], default: cosine}}
outputs:
  model: {{type: mlflow_model, description: The model.}}
code: ./src
additional_includes: [./other.py]
environment:
  name: own
  version: "2"
  image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04
  conda_file: ./conda.yaml
  os_type: linux
distribution: {{type: pytorch, process_count_per_instance: 2}}
resources: {{instance_count: 1, shm_size: 2g, docker_args: --ipc=host}}
command: >-
  python train.py ${{{{inputs.data}}}} ${{{{inputs.epochs}}}} ${{{{inputs.rate}}}} ${{{{inputs.flag}}}}
  ${{{{inputs.schedule}}}} ${{{{outputs.model}}}}
""",
    "inner.yaml": f"""\
$schema: {_SCHEMAS}/pipelineComponent.schema.json
type: pipeline
name: inner
version: "1"
description: Inner.
inputs:
  count: {{type: integer, default: 5, min: 1}}
  rows: {{type: uri_folder, optional: true}}
outputs:
  data: {{type: uri_folder}}
jobs:
  prepare:
    type: command
    component: ./prepare.yaml
    inputs: {{rows: "${{{{parent.inputs.count}}}}", raw: "${{{{parent.inputs.rows}}}}"}}
    outputs: {{data: "${{{{parent.outputs.data}}}}"}}
""",
    "small.yaml": """\
type: command
name: small
inputs: {data: {type: uri_folder, optional: true}, rate: {type: number, default: 0.5}}
outputs: {model: {type: uri_folder}}
command: echo ${{inputs.rate}} $[[${{inputs.data}}]] ${{outputs.model}}
environment: azureml:numbers:1
""",
    "whole.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
name: whole
display_name: The whole
description: A pipeline of a job.
experiment_name: tries
tags: {{kind: example, level: "1"}}
settings: {{default_compute: azureml:cpu, default_datastore: azureml:store, continue_on_step_failure: false, force_rerun: true}}
inputs:
  rate: 0.5
  raw: {{type: uri_folder, path: ./rows, mode: ro_mount}}
outputs:
  model: {{type: uri_folder, mode: rw_mount, name: best, version: "3"}}
jobs:
  train:
    type: command
    component: ./small.yaml
    inputs: {{data: "${{{{parent.inputs.raw}}}}", rate: "${{{{parent.inputs.rate}}}}"}}
    outputs: {{model: "${{{{parent.outputs.model}}}}"}}
""",
    "step.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
compute: azureml:cpu
jobs:
  train:
    type: command
    component: ./small.yaml
    compute: azureml:gpu
    comment: a remark
    display_name: Training
    inputs: {{rate: {{value: 0.3}}, data: {{type: uri_folder, path: ./rows, mode: download}}}}
    outputs: {{model: {{type: uri_folder, mode: upload, path: azureml://datastores/store/paths/x, name: kept, version: 7}}}}
    resources: {{instance_count: 2, shm_size: 4g}}
    distribution: {{type: mpi, process_count_per_instance: 1}}
    environment_variables: {{LEVEL: "3"}}
    limits: {{timeout: 600}}
    identity: {{type: managed, client_id: a1}}
    services: {{shell: {{type: ssh, ssh_public_keys: key, nodes: all}}, board: {{type: tensor_board, log_dir: logs, port: 6006}}}}
    queue_settings: {{job_tier: standard}}
""",
    "inline.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
inputs: {{word: {{value: text}}}}
settings: {{default_compute: azureml:cpu}}
jobs:
  report:
    type: command
    command: echo ${{{{inputs.word}}}} > ${{{{outputs.text}}}}/report.txt
    code: ./src
    environment: {{image: ubuntu, conda_file: {{dependencies: [python]}}}}
    display_name: Report
    inputs: {{word: "${{{{parent.inputs.word}}}}"}}
    outputs: {{text: {{type: uri_folder, mode: upload}}}}
    services: {{lab: {{type: jupyter_lab}}}}
    identity: {{type: user_identity}}
""",
    "search.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
compute: azureml:cpu
jobs:
  search:
    type: sweep
    trial: ./small.yaml
    inputs: {{data: {{type: uri_folder, path: ./rows}}}}
    search_space: {{rate: {{type: uniform, min_value: 0.1, max_value: 0.9}}}}
    sampling_algorithm: {{type: random, seed: 3, rule: sobol, logbase: e}}
    objective: {{goal: minimize, primary_metric: loss}}
    limits: {{max_total_trials: 4, max_concurrent_trials: 2, timeout: 3600, trial_timeout: 600}}
    early_termination: {{type: bandit, slack_factor: 0.1, evaluation_interval: 2, delay_evaluation: 1}}
""",
    "nested.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
settings: {{default_compute: azureml:cpu}}
jobs:
  inside:
    type: pipeline
    component: ./inner.yaml
    inputs: {{count: 3, rows: {{type: uri_folder, path: ./rows}}}}
    outputs: {{data: {{mode: upload}}}}
""",
    "job.yaml": f"""\
$schema: {_SCHEMAS}/commandJob.schema.json
type: command
name: single
display_name: One job
description: A command job.
experiment_name: tries
tags: {{kind: example}}
properties: {{owner: us}}
code: ./src
command: python train.py ${{{{inputs.raw}}}} ${{{{inputs.rate}}}} ${{{{outputs.model}}}}
inputs:
  raw: {{type: uri_file, path: ./rows/rows.csv, mode: download}}
  rate: 0.5
outputs:
  model: {{type: custom_model, mode: upload, name: best}}
environment: azureml:numbers@latest
environment_variables: {{LEVEL: "3"}}
compute: azureml:cpu
resources: {{instance_count: 2}}
distribution: {{type: tensorflow, worker_count: 2, parameter_server_count: 1}}
limits: {{timeout: 600}}
identity: {{type: aml_token}}
services: {{shell: {{type: ssh, nodes: all}}}}
queue_settings: {{job_tier: basic}}
""",
    "sweep.yaml": f"""\
$schema: {_SCHEMAS}/sweepJob.schema.json
type: sweep
name: searching
display_name: A search
experiment_name: tries
tags: {{kind: example}}
trial:
  code: ./src
  command: python train.py ${{{{inputs.raw}}}} ${{{{search_space.rate}}}} ${{{{search_space.depth}}}} ${{{{search_space.noise}}}}
  environment: azureml://registries/azureml/environments/sklearn-1.5/versions/12
  environment_variables: {{LEVEL: "3"}}
  resources: {{instance_count: 1}}
inputs:
  raw: {{type: uri_file, path: https://example.com/rows.csv}}
search_space:
  rate: {{type: loguniform, min_value: -6, max_value: -1}}
  depth: {{type: quniform, min_value: 1, max_value: 9, q: 1}}
  noise: {{type: qlognormal, mu: 0, sigma: 1, q: 2}}
sampling_algorithm: random
objective: {{goal: maximize, primary_metric: accuracy}}
limits: {{max_total_trials: 4}}
early_termination: {{type: truncation_selection, truncation_percentage: 20, evaluation_interval: 1}}
compute: azureml:cpu
""",
    **KINDS,
}
LIBRARY = tuple(
    str(path.relative_to(library.root()))
    for folder, names in (("components", "*/component.yaml"), ("pipelines", "*.yaml"))
    for path in sorted((library.root() / folder).glob(names))
)
"""The library's own documents, below its root."""

DOCUMENTS = tuple(name for name, text in FILES.items() if text.startswith("$schema"))
_ODD: tuple[tuple[str, Any], ...] = (
    ("a number", 5),
    ("a boolean", True),
    ("a fraction", 2.5),
    ("a negative number", -1),
    ("a text", "nonsense"),
    ("an empty text", ""),
    ("nothing", None),
    ("a list", ["x"]),
    ("a mapping", {"colour": "red"}),
    ("an empty mapping", {}),
)


@dataclass(frozen=True)
class Mutation:
    """One document with one mistake.

    Attributes:
        document: the file that it was made from.
        name: the place and what was done to it, such as ``jobs.train.limits: a list``.
        data: the document.
    """

    document: str
    name: str
    data: dict[str, Any]


def mutations_of(document: str, data: dict[str, Any]) -> Iterator[Mutation]:
    """Every mistake that the rules make of one document, in a fixed order."""
    for path in _places(data):
        for what, changed in _changes(data, path):
            yield Mutation(document, f"{'.'.join(map(str, path))}: {what}", changed)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


def _changes(data: dict[str, Any], path: tuple[Any, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    value = _at(data, path)
    if isinstance(value, dict):
        yield "an unknown key", _with(data, (*path, "colour"), "red")
    if not path or path == ("$schema",):  # which says what the document is
        return
    *above, key = path
    if isinstance(key, str):
        removed = _without(data, path)
        yield "removed", removed
        yield "misspelt", _with(removed, (*above, key[:-1]), value)
        if above and isinstance(above[-1], str):
            yield "one level too high", _with(removed, (*above[:-1], key), value)
    for what, odd in _ODD:
        if type(odd) is not type(value) or (odd != value and not isinstance(odd, dict)):
            yield what, _with(data, path, odd)
    if isinstance(value, str):
        yield "in capitals", _with(data, path, value.upper())
        if "_" in value and value.isidentifier():
            yield "in camel case", _with(data, path, "".join(word.capitalize() for word in value.split("_")))
        if value.startswith("azureml:") and "//" not in value:
            yield "without azureml:", _with(data, path, value.removeprefix("azureml:"))
        if value.startswith("./"):
            yield "not there", _with(data, path, "./nowhere/" + value[2:])


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _with(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = _opened(data, path)
    _at(changed, path[:-1])[path[-1]] = value
    return changed


def _without(data: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    changed = _opened(data, path)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def _opened(data: Any, path: tuple[Any, ...]) -> Any:
    """The document with copies of what leads to a place; all else is shared, or thousands of mistakes copy it in vain."""
    changed = copy.copy(data)
    if len(path) > 1:
        changed[path[0]] = _opened(data[path[0]], path[1:])
    return changed


def write_files(folder: Path) -> None:
    """Write the sound documents and what they name."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def link_library(folder: Path) -> None:
    """Put the library's folders below one, each component in a place of its own, so that a changed one finds all."""
    for name in ("components", "pipelines"):
        (folder / name).mkdir()
    for path in (library.root() / "components").iterdir():
        (folder / "components" / path.name).symlink_to(path)
    (folder / "shared").symlink_to(library.root() / "shared")


def sound_document(name: str) -> dict[str, Any]:
    """One of ``DOCUMENTS`` or ``LIBRARY`` as data."""
    data: dict[str, Any] = yaml.safe_load(FILES[name] if name in FILES else (library.root() / name).read_text())
    return data
