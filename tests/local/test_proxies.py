"""Behind a proxy, as in most companies, ranks reach one another: no program asks the proxy for an emulated node."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.local.variables import proxy_exceptions
from tests.local.support import ROOT, pipeline, run_json, step

PROXY = "http://127.0.0.1:9"  # nobody listens there

TRAINING = f"""
type: pipeline
jobs:
  prepare:
    component: {ROOT}/components/prepare_data/component.yaml
  train:
    component: {ROOT}/components/train_tf_multiworker/component.yaml
    inputs: {{data: "${{{{parent.jobs.prepare.outputs.data}}}}", epochs: 1}}
    distribution: {{type: tensorflow, worker_count: 2}}
    resources: {{instance_count: 2}}
"""


def test_the_nodes_of_a_step_are_no_hosts_of_the_proxy(tmp_path: Path) -> None:
    one = step(
        "echo $NO_PROXY $no_proxy > ${{outputs.out}}/$NODE_RANK",
        outputs="out: {type: uri_folder}",
        more="distribution: {type: pytorch, process_count_per_instance: 1}, resources: {instance_count: 2}",
    )
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {one}}}\n")
    result = run_json(file, cwd=tmp_path, http_proxy=PROXY, no_proxy="intern.example")
    told = [path.read_text().split() for path in Path(result["steps"]["one"]["outputs"]["out"]).iterdir()]
    assert told == [["intern.example,127.0.0.1,localhost,127.0.0.2"] * 2] * 2


def test_who_has_no_proxy_gets_no_exceptions_from_one() -> None:
    assert proxy_exceptions({"PATH": "/bin"}, ["localhost"]) == {}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_tensorflow_meets_there(tmp_path: Path) -> None:
    result = run_json(pipeline(tmp_path, TRAINING), cwd=tmp_path, http_proxy=PROXY, https_proxy=PROXY)
    assert result["status"] == "succeeded", result["steps"]["train"]["failure"]
