"""Nodes that a step can do without: its torchrun goes on with fewer, as its input ``min_nodes`` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.local.support import pipeline, run_json

COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: elastic
version: "1"
inputs:
  processes_per_node: {{type: integer, default: 1}}
  min_nodes: {{type: integer, optional: true}}
  lost: {{type: integer}}
code: .
environment: azureml:x@latest
distribution: {{type: pytorch}}
resources: {{instance_count: 3}}
command: >-
  bash node.sh '${{{{inputs.lost}}}}' '{mark}' '${{{{inputs.processes_per_node}}}}' $[['${{{{inputs.min_nodes}}}}']]
"""
# What a torchrun that is killed leaves behind: its ranks, each in a session of its own; the others see that these end.
NODE = """
if [ $NODE_RANK = $1 ]; then setsid sleep 300 & echo $! > "$2.new"; mv "$2.new" "$2"; kill -KILL $$; fi
until [ -s "$2" ] && ! kill -0 $(cat "$2") 2> /dev/null; do sleep 0.1; done
"""


def run_elastic(folder: Path, lost: int, more: str = "") -> dict[str, Any]:
    (folder / "component.yaml").write_text(COMPONENT.format(mark=folder / "mark"))
    (folder / "node.sh").write_text(NODE)
    inputs = f"lost: {lost}, {more}"
    text = f"{{type: command, component: ./component.yaml, inputs: {{{inputs}}}}}"
    return run_json(pipeline(folder, f"type: pipeline\njobs: {{train: {text}}}\n"), cwd=folder)


def test_the_others_go_on_without_a_lost_node_of_which_nothing_stays(tmp_path: Path) -> None:
    result = run_elastic(tmp_path, 1, "min_nodes: 2")
    assert result["exit"] == 0, result


@pytest.mark.parametrize(("lost", "more"), [(1, ""), (0, "min_nodes: 2"), (2, "min_nodes: 3")])
def test_a_node_that_is_needed_ends_the_step(lost: int, more: str, tmp_path: Path) -> None:
    result = run_elastic(tmp_path, lost, more)
    failure = result["steps"]["train"]["failure"]
    assert (result["exit"], failure["node"]) == (1, lost)


def test_more_nodes_than_there_are(tmp_path: Path) -> None:
    text = str(run_elastic(tmp_path, 1, "min_nodes: 4"))
    assert "min_nodes 4 is more than instance_count 3; give at most 3." in text
