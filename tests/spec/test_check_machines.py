"""VM sizes against ranks and nodes in whole pipelines: bindings, clusters, nested steps, cheap machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.cli.main import main
from allranks.errors import Problem
from allranks.spec import Compute, check_machines, read_spec
from tests.in_process import allranks

COMPONENT = """\
type: command
name: sample
inputs:
  data: {{type: uri_folder, optional: true}}
outputs:
  model: {{type: uri_folder}}
  checkpoints: {{type: uri_folder, mode: {mode}}}
command: python train.py $[[--data '${{{{inputs.data}}}}']] --model '${{{{outputs.model}}}}'
environment: azureml:some:1
distribution: {{type: pytorch, process_count_per_instance: 1}}
"""
PIPELINE = """\
type: pipeline
inputs: {{gpus: 8, machines: 2, size: Standard_ND96isr_H100_v5}}
settings: {{default_compute: azureml:{compute}}}
jobs:
  train:
    component: ./component.yaml
{step}"""


def problems(
    folder: Path,
    step: str,
    *,
    mode: str = "rw_mount",
    compute: str = "serverless",
    computes: dict[str, Compute] | None = None,
) -> list[Problem]:
    (folder / "component.yaml").write_text(COMPONENT.format(mode=mode))
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.format(step=step, compute=compute))
    return check_machines(read_spec(file, resolve=catalogue.resolve), computes=computes)


def settings(size: str, nodes: object = 1, processes: object = 8) -> str:
    return (
        f'    resources: {{instance_type: "{size}", instance_count: "{nodes}"}}\n'
        f'    distribution: {{type: pytorch, process_count_per_instance: "{processes}"}}\n'
    )


def test_a_pipeline_that_fits(tmp_path: Path) -> None:
    assert problems(tmp_path, settings("Standard_ND96isr_H100_v5", 2)) == []
    assert problems(tmp_path, "") == []


def test_a_size_that_the_library_s_environment_does_not_suit(tmp_path: Path) -> None:
    step = settings("Standard_ND96isr_MI300X_v5")
    assert problems(tmp_path, step) == [], "of other environments nothing is known"
    component = tmp_path / "component.yaml"
    component.write_text(component.read_text().replace("azureml:some:1", "azureml:allranks-pytorch:0.1.0"))
    (found,) = check_machines(read_spec(tmp_path / "pipeline.yaml", resolve=catalogue.resolve))
    assert (found.severity, found.where, found.line) == ("error", "jobs.train.resources.instance_type", 7)
    assert "'pytorch' does not suit Standard_ND96isr_MI300X_v5: its GPUs are AMD's" in found.message


def test_more_ranks_than_gpus_with_file_line_and_place(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, settings("Standard_NC24ads_A100_v4"))
    assert found.severity == "error"
    assert found.where == "jobs.train.distribution.process_count_per_instance"
    assert found.file == tmp_path / "pipeline.yaml"
    assert found.line == 8


def test_what_is_bound_to_the_pipeline_is_followed(tmp_path: Path) -> None:
    bound = settings("${{parent.inputs.size}}", "${{parent.inputs.machines}}", "${{parent.inputs.gpus}}")
    assert problems(tmp_path, bound) == []
    (found,) = problems(tmp_path, settings("Standard_NC64as_T4_v3", 1, "${{parent.inputs.gpus}}"))
    assert "8 processes on each node" in found.message


def test_a_component_that_starts_its_own_processes_is_judged_by_its_input(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "type: pipeline\njobs:\n  train:\n    component: azureml:train_torchrun\n"
        "    inputs: {data: {type: uri_folder, path: 'azureml:d:1'}, processes_per_node: 4}\n"
        "    resources: {instance_type: Standard_ND96isr_H100_v5, shm_size: 8g}\n"
    )
    (found,) = check_machines(read_spec(file, resolve=catalogue.resolve))
    assert found.where == "jobs.train.inputs.processes_per_node"
    assert "4 processes on each node, and Standard_ND96isr_H100_v5 has 8 H100 GPUs" in found.message


def test_a_cluster_that_is_known_counts_instead_of_the_step_s_size(tmp_path: Path) -> None:
    computes = {"a100": Compute("Standard_NC24ads_A100_v4")}
    (found,) = problems(tmp_path, settings("", 1, 2), compute="a100", computes=computes)
    assert "has 1 A100 GPU" in found.message
    assert problems(tmp_path, settings("", 1, 2), compute="other", computes=computes) == []


@pytest.mark.parametrize("mode", ["rw_mount", "upload"])
def test_cheap_machines_want_a_mounted_output(tmp_path: Path, mode: str) -> None:
    spot = problems(tmp_path, "    queue_settings: {job_tier: Spot}\n", mode=mode)
    if mode == "rw_mount":
        assert spot == []
        return
    assert [(one.where, one.severity) for one in spot] == [("jobs.train.queue_settings.job_tier", "warning")]
    assert problems(tmp_path, "    outputs: {model: {mode: rw_mount}}\n", mode=mode, compute="cheap") == []


def test_a_nested_step_gets_the_outer_values(tmp_path: Path) -> None:
    step = settings("${{parent.inputs.size}}", 1, "${{parent.inputs.gpus}}")
    problems(tmp_path, step)
    outer = tmp_path / "outer.yaml"
    outer.write_text(
        "type: pipeline\njobs:\n  inner:\n    type: pipeline\n    component: ./pipeline.yaml\n    inputs: {gpus: 16}\n"
    )
    (found,) = check_machines(read_spec(outer))
    assert "16 processes on each node" in found.message
    assert found.file == tmp_path / "pipeline.yaml"


def test_an_unknown_tier_is_an_error_with_the_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems(tmp_path, "")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(step="    queue_settings: {job_tier: sport}\n", compute="serverless"))
    assert main(["lint", str(file)]) == 2
    assert "'sport' is no tier of Azure ML. Did you mean 'spot'?" in capsys.readouterr().out


def test_lint_fails_and_a_local_run_only_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems(tmp_path, settings("Standard_NC24ads_A100_v4", 2, 2))
    (tmp_path / "train.py").write_text("")
    file = str(tmp_path / "pipeline.yaml")
    assert main(["lint", file, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [problem["severity"] for problem in document["problems"]] == ["error", "warning"]
    done = allranks("run", file, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("note: ") >= 2
    assert "2 processes on each node" in done.stderr


@pytest.mark.parametrize("name", [*catalogue.COMPONENTS, *catalogue.PIPELINES])
def test_the_library_itself_has_nothing_to_say(name: str) -> None:
    path = catalogue.resolve(name)
    assert path is not None
    assert check_machines(read_spec(path, resolve=catalogue.resolve)) == []
