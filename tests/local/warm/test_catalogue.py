"""Every component of the library gives the same after `allranks warm` as without: weights, reports, logs, variables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from allranks.drill.comparing import compare_outputs
from tests.local.support import ROOT
from tests.local.warm.support import Warmth

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]

REST = f"""
type: pipeline
inputs: {{epochs: 2}}
jobs:
  check:
    component: {ROOT}/components/check_cluster/component.yaml
    distribution: {{type: pytorch, process_count_per_instance: 2}}
  prepare:
    component: {ROOT}/components/prepare_data/component.yaml
  lightning:
    component: {ROOT}/components/train_lightning/component.yaml
    inputs: {{data: "${{{{parent.jobs.prepare.outputs.data}}}}", epochs: "${{{{parent.inputs.epochs}}}}"}}
    distribution: {{type: pytorch, process_count_per_instance: 2}}
  deepspeed:
    component: {ROOT}/components/train_deepspeed/component.yaml
    inputs: {{data: "${{{{parent.jobs.prepare.outputs.data}}}}", epochs: "${{{{parent.inputs.epochs}}}}"}}
    distribution: {{type: pytorch, process_count_per_instance: 2}}
"""
ASYNCHRONOUS = ("parameter_server",)
"""Of its steps two runs differ, however they are started."""
MEASURED = ("compare", "check")
"""Reports of speeds."""
LAUNCHED = ("torchrun",)
"""Started as ever, and torch's store complains in some of their logs that it is taken down."""
_OF_THE_RUN = re.compile(r"\b[0-9a-f]{64}\b|(127\.0\.0\.\d+|localhost):\d+|PORT\": \"\d+")
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?")


@pytest.mark.parametrize(
    ("pipeline", "inputs", "forked"),
    [
        ("image_classification", ["epochs=2"], 5),
        ("language_model", ["max_steps=4", "layers=1", "width=64"], 5),
        ("finetune_text", ["epochs=1", "sequence_length=64"], 5),
        ("tune_image_classification", ["epochs=1"], 10),
        ("compare_frameworks", ["epochs=2"], 14),
        ("rest", [], 3),
    ],
)
def test_it_gives_the_same_as_without(
    warmth: Warmth, tmp_path: Path, pipeline: str, inputs: list[str], forked: int
) -> None:
    source = ROOT / "pipelines" / f"{pipeline}.yaml"
    if pipeline == "rest":
        source = tmp_path / "rest.yaml"
        source.write_text(REST)
    cold = warmth.warm_up(source, *inputs, cwd=tmp_path)
    before = warmth.forked()
    warm = warmth.run(source, *inputs, cwd=tmp_path)
    assert warmth.forked() - before >= forked, warmth.state()
    assert cold["exit"] == warm["exit"] == 0
    for name, one in cold["steps"].items():
        other = warm["steps"][name]
        assert variables(cold, one) == variables(warm, other), name
        if any(word in name for word in ASYNCHRONOUS):
            continue
        if not any(word in name for word in LAUNCHED):
            assert said(cold, one) == said(warm, other), name
        if name not in MEASURED:
            found = compare_outputs(outputs(one), outputs(other))
            assert found.differences == {}, name
            assert found.is_equal, name


def outputs(step: dict[str, Any]) -> dict[str, Path]:
    """The outputs of a step by their names."""
    return {name: Path(path) for name, path in step["outputs"].items()}


def variables(run: dict[str, Any], step: dict[str, Any]) -> list[str]:
    """What the ranks of a step were given, as its step.json shows it, with what is of the run alone blotted out."""
    found = json.loads(Path(step["folder"], "step.json").read_text())["variables"]
    return blotted(run, json.dumps(found, indent=1)).splitlines()


def said(run: dict[str, Any], step: dict[str, Any]) -> dict[str, set[str]]:
    """The lines of each log without numbers and their padding: how often a rank tells of its progress depends on its speed."""
    logs = sorted(Path(step["folder"]).glob("user_logs/**/*.txt"))
    assert logs, step["name"]
    return {
        log.name: {" ".join(_NUMBER.sub("#", line).split()) for line in blotted(run, log.read_text()).splitlines()}
        for log in logs
    }


def blotted(run: dict[str, Any], text: str) -> str:
    """A text without what is of a run alone."""
    text = text.replace(run["run_id"], "RUN").replace(run["run_dir"], "FOLDER")
    return _OF_THE_RUN.sub("#", text)
