"""Where an input's value comes from, through nested pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.local.folders import RunsHome
from allranks.performing import prepare_run
from allranks.request import RunRequest
from tests.local.support import pipeline

INNER = """\
type: pipeline
name: inner
inputs:
  rate: {type: number}
  word: {type: string, default: hello}
  fixed: {type: string}
jobs:
  work:
    type: command
    command: echo ${{inputs.rate}} ${{inputs.word}} ${{inputs.fixed}} ${{inputs.both}} ${{inputs.own}}
    environment: azureml:own:1
    inputs:
      rate: ${{parent.inputs.rate}}
      word: ${{parent.inputs.word}}
      fixed: ${{parent.inputs.fixed}}
      both: ${{parent.inputs.word}}-${{parent.inputs.fixed}}
      own: 3
"""
OUTER = """\
type: pipeline
inputs:
  rate: 0.5
jobs:
  outer:
    type: pipeline
    component: ./inner.yaml
    inputs:
      rate: ${{parent.inputs.rate}}
      fixed: stone
"""
FIXED = "input fixed of outer: written in pipeline.yaml, line 10"
AS_WRITTEN = {
    "rate": (
        "default",
        "input rate of outer, which is input rate of the pipeline: default in pipeline.yaml, line 3",
        3,
    ),
    "word": ("default", "input word of outer: default in inner.yaml, line 5", 5),
    "fixed": ("written", FIXED, 10),
    "both": ("composed", f"made from input word of outer: default in inner.yaml, line 5 and {FIXED}", None),
    "own": ("written", "written in inner.yaml, line 17", 17),
}
GIVEN = {
    "rate": ("given", "input rate of outer, which is input rate of the pipeline: given as rate", None),
    "word": ("given", "input word of outer: given as outer.word", None),
    "fixed": AS_WRITTEN["fixed"],
    "both": ("composed", f"made from input word of outer: given as outer.word and {FIXED}", None),
    "own": ("given", "given as outer.work.own", None),
}


@pytest.mark.parametrize(
    ("values", "expected"), [({}, AS_WRITTEN), ({"rate": "1", "outer.word": "z", "outer.work.own": "4"}, GIVEN)]
)
def test_the_way_to_a_value_is_told(
    tmp_path: Path, values: dict[str, str], expected: dict[str, tuple[str, str, int | None]]
) -> None:
    pipeline(tmp_path, INNER, "inner.yaml")
    file = pipeline(tmp_path, OUTER)
    prepared = prepare_run(RunRequest(str(file), str(tmp_path), values=values), RunsHome(tmp_path / "runs"))
    sources = prepared.plan.steps["outer.work"].sources
    assert {name: (one.kind, one.words, one.line) for name, one in sources.items()} == expected
    files = {"inner.yaml", "pipeline.yaml", ""}
    assert {Path(one.file or "").name for one in sources.values()} <= files


def test_what_scale_sets_is_given_by_it(tmp_path: Path) -> None:
    request = RunRequest("image_classification_torchrun", str(tmp_path), scale={"train": (2, 3)})
    prepared = prepare_run(request, RunsHome(tmp_path / "runs"))
    sources = prepared.plan.steps["train"].sources
    assert sources["processes_per_node"].words == "given as --scale train=2x3"
    assert sources["data"].words == "output prepared_data of prepare" or sources["data"].kind == "output"
