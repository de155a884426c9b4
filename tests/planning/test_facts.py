"""What a target's settings say of a training, held against the models that the components build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allranks.catalogue import PIPELINES, pipeline_files
from allranks.cli.target import load_target
from allranks.local.settings import apply_values
from allranks.planning.network_waits import network_waits
from allranks.planning.step import GRADIENTS_SHARDED, REPLICATED, SHARDED
from allranks.planning.training_facts import PUBLISHED_WEIGHTS, TrainingFacts, training_steps
from allranks.spec import Pipeline, read_spec

LANGUAGE_MODEL = """
type: pipeline
jobs:
  prepare:
    type: command
    component: azureml:prepare_text
    inputs: {dataset: stdlib, vocabulary: 32000, sequence_length: 512}
  train:
    type: command
    component: azureml:train_fsdp
    inputs:
      data: ${{parent.jobs.prepare.outputs.data}}
      layers: 24
      width: 2048
      heads: 16
      batch_size: BATCH
      precision: bf16
    resources: {instance_type: SIZE, instance_count: NODES, shm_size: 8g}
    distribution: {type: pytorch, process_count_per_instance: 1}
"""


def facts(target: str, **values: str) -> TrainingFacts:
    pipeline, problems = apply_values(load_target(target), values)
    assert not problems
    (found,) = training_steps(pipeline)
    return found


@pytest.mark.parametrize("architecture", PUBLISHED_WEIGHTS)
def test_the_weights_of_an_architecture_are_those_of_the_model_that_is_built(architecture: str) -> None:
    import torch

    from shared.models.build import ZOO

    with torch.device("meta"):
        model = ZOO[architecture]((3, 224, 224), 1000)
    assert sum(one.numel() for one in model.parameters()) == PUBLISHED_WEIGHTS[architecture]


@pytest.mark.parametrize("tied", [True, False])
def test_the_weights_of_a_language_model_follow_from_its_settings(tied: bool) -> None:
    from shared.models.decoder import DecoderModel, DecoderSettings

    found = facts("language_model", layers="3", width="96", heads="4", **{"train.tie_embeddings": str(tied).lower()})
    model = DecoderModel(DecoderSettings(4096, 128, layers=3, width=96, heads=4, tied=tied))
    assert found.weights == sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize(
    ("target", "values", "division"),
    [
        ("train_ddp", {}, REPLICATED),
        ("train_horovod", {}, REPLICATED),
        ("train_fsdp", {}, SHARDED),
        ("train_fsdp", {"reshard_after_forward": "false"}, GRADIENTS_SHARDED),
        ("train_deepspeed", {}, GRADIENTS_SHARDED),
        ("train_deepspeed", {"zero_stage": "3"}, SHARDED),
        ("train_deepspeed", {"zero_stage": "1"}, REPLICATED),
        ("train_transformers", {}, REPLICATED),
        ("train_transformers", {"sharding": "fsdp"}, SHARDED),
    ],
)
def test_a_component_s_settings_say_how_its_model_lies_on_ranks(
    target: str, values: dict[str, str], division: str
) -> None:
    assert facts(target, **values).exchange(1e6).division == division


def test_a_model_that_the_data_shapes_is_not_known() -> None:
    assert facts("train_ddp").weights is None
    assert facts("train_ddp", architecture="resnet50").weights == 25_557_032
    assert facts("train_fsdp").weights is None  # its vocabulary is the data's


def written(folder: Path, *, batch: int, size: str = "Standard_NC24ads_A100_v4", nodes: int = 8) -> Path:
    file = folder / "pipeline.yml"
    text = LANGUAGE_MODEL.replace("BATCH", str(batch)).replace("SIZE", size).replace("NODES", str(nodes))
    file.write_text(text)
    return file


def waits(file: Path) -> list[str]:
    from allranks import catalogue

    return [problem.message for problem in network_waits(read_spec(file, resolve=catalogue.resolve))]


def test_a_language_model_that_waits_for_ethernet_is_warned_of(tmp_path: Path) -> None:
    (said,) = waits(written(tmp_path, batch=32))
    assert "8 nodes of Standard_NC24ads_A100_v4 would compute for at most" in said
    assert "20 Gb/s of Ethernet" in said


@pytest.mark.parametrize(
    "changes",
    [{"batch": 8192}, {"batch": 32, "nodes": 1}, {"batch": 32, "size": "Standard_ND96amsr_A100_v4"}],
    ids=["large batch", "one node", "InfiniBand"],
)
def test_nothing_is_said_of_a_step_that_may_be_well(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert waits(written(tmp_path, **changes)) == []


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("size", ["Standard_NC24ads_A100_v4", "Standard_NC64as_T4_v3"])
def test_nothing_is_said_of_our_own_pipelines_at_their_defaults(name: str, size: str) -> None:
    from dataclasses import replace

    from allranks.local.settings import all_steps

    pipeline = read_spec(pipeline_files()[name])
    assert isinstance(pipeline, Pipeline)
    steps = {
        key: replace(step, resources=replace(step.resources, instance_type=size))
        for key, step in pipeline.steps.items()
    }
    assert network_waits(replace(pipeline, steps=steps)) == []
    assert all_steps(pipeline)
