"""A folder with two sound components, which the tests wire rightly and wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.errors import Problem, SpecError
from allranks.spec import check_document, read_spec
from tests.azure.quick_sdk import libyaml

__all__ = ["libyaml"]

PREPARE = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: prepare
version: "1"
inputs:
  raw: {type: uri_folder, optional: true}
  rows: {type: integer, default: 100, min: 1}
outputs:
  data: {type: uri_folder}
  table: {type: uri_file}
code: ./src
environment: azureml:numbers:1
command: >-
  python prepare.py --rows '${{inputs.rows}}' $[[--raw '${{inputs.raw}}']]
  --data '${{outputs.data}}' --table '${{outputs.table}}'
"""

TRAIN = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: train
display_name: Train a model
description: Fits a model on shards of rows.
version: "1"
tags: {kind: example}
inputs:
  data: {type: uri_folder, mode: ro_mount}
  epochs: {type: integer, default: 10, min: 0, max: 10000}
  rate: {type: number, default: 1e-3, min: "0"}
  schedule: {type: string, enum: [cosine, constant], default: cosine}
  augment: {type: string, enum: ["true", "false"], default: "false"}
  resume: {type: uri_folder, optional: true}
outputs:
  model: {type: mlflow_model}
code: ./src
additional_includes: [./common]
environment: azureml://registries/somewhere/environments/torch/versions/3
distribution: {type: PyTorch, process_count_per_instance: 2}
resources: {instance_count: 1, shm_size: 2g}
command: >-
  python train.py --data '${{inputs.data}}' --epochs '${{inputs.epochs}}' --rate '${{inputs.rate}}'
  --schedule '${{inputs.schedule}}' --augment '${{inputs.augment}}' $[[--resume '${{inputs.resume}}']]
  --model '${{outputs.model}}'
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("src", "common", "rows"):
        (tmp_path / name).mkdir()
    for script in ("prepare.py", "train.py", "tune.py", "a.py"):
        (tmp_path / "src" / script).touch()
    (tmp_path / "prepare.yaml").write_text(PREPARE)
    (tmp_path / "train.yaml").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def problems_of(folder: Path) -> Callable[..., list[Problem]]:
    """Return a function that reads and checks a text as a file of that folder and returns what is wrong."""

    def problems_of(text: str, values: dict[str, object] | None = None) -> list[Problem]:
        path = folder / "document.yaml"
        path.write_text(text)
        try:
            return check_document(read_spec(path), values)
        except SpecError as error:
            return list(error.problems)

    return problems_of
