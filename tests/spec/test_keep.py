"""What a run keeps of its pipeline is the pipeline."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.cli import target
from allranks.spec import Pipeline, read_spec
from allranks.spec.keep import kept_document, kept_pipeline


@pytest.mark.parametrize("name", [*catalogue.PIPELINES, "train_ddp"])
def test_a_pipeline_is_kept_whole(name: str) -> None:
    pipeline = target.load_target(name)
    kept = kept_pipeline(json.loads(json.dumps(kept_document(pipeline))))
    assert kept == pipeline
    assert outline(repr(kept)) == outline(repr(pipeline)), "a tuple is no list, and a path no text"


def outline(text: str) -> str:
    """Without the proxies: a mapping within a mapping need not be frozen."""
    return re.sub(r"mappingproxy|[()]", "", text)


def test_what_another_version_kept_is_refused() -> None:
    document = kept_document(target.load_target("train_ddp"))
    for wrong in ({**document, "colour": 1}, {**document, "source": {"$kind": "Origin"}}, {"$kind": "Path"}):
        with pytest.raises(ValueError, match="not of this version"):
            kept_pipeline(wrong)


KINDS = """
type: pipeline
settings: {default_compute: azureml:cpu}
inputs: {data: {type: uri_folder, path: .}, yes: {type: boolean, default: true}}
jobs:
  score:
    type: parallel
    inputs: {files: "${{parent.inputs.data}}"}
    outputs: {rows: {type: uri_folder}}
    input_data: ${{inputs.files}}
    mini_batch_size: "2"
    resources: {instance_count: 1}
    task: {type: run_function, code: ., entry_script: score.py, environment: azureml:any:1}
  tell: {type: command, command: echo, environment: "azureml:any:1"}
  choose: {type: if_else, condition: "${{parent.inputs.yes}}", true_block: "${{parent.jobs.tell}}"}
"""


def test_every_kind_of_step_is_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("")
    (tmp_path / "pipeline.yaml").write_text(KINDS)
    pipeline = read_spec(tmp_path / "pipeline.yaml")
    assert isinstance(pipeline, Pipeline)
    built = kept_pipeline(json.loads(json.dumps(kept_document(pipeline))))
    assert [type(step.component) for step in built.steps.values()] == [
        type(step.component) for step in pipeline.steps.values()
    ]
    assert kept_document(built) == kept_document(pipeline)
