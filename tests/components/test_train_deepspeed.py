"""train_deepspeed: one model in all stages and that of train_ddp, checkpoints for any stage and ranks, MPI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.components.frameworks import run_trainer, weights_of
from tests.components.training import (
    bit_equal,
    check_times,
    furthest,
    kill_at,
    refused,
    train,
    weights,
    write_digits,
)
from tests.helpers import ROOT
from tests.shared.test_deepspeed import GUIDE

DEEPSPEED: dict[str, Any] = {"script": "train_deepspeed"}
SHARDED = {"stage3_param_persistence_threshold": 0}
"""DeepSpeed keeps small parameters whole, and here all are small."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("few"), rows=400, encoded=True)


def written(path: Path, configuration: dict[str, Any]) -> Path:
    path.write_text(json.dumps(configuration))
    return path


@pytest.mark.slow
def test_the_weights_are_those_of_ddp_in_all_stages(digits: Path, tmp_path: Path, exhaustive: bool) -> None:
    train(digits, tmp_path / "ddp", epochs=3)
    options = {**DEEPSPEED, "epochs": 3}
    if exhaustive:
        train(digits, tmp_path / "1", **options, processes=2, zero_stage=1)
    train(digits, tmp_path / "2", **options, nodes=2, zero_stage=2, offload="optimizer", accumulation_steps=2)
    sharded = written(tmp_path / "sharded.json", {"zero_optimization": {"stage": 3, **SHARDED}})
    train(digits, tmp_path / "3", **options, processes=2, config=sharded, gradient_checkpointing="true")
    expected = weights(tmp_path / "ddp")
    for stage in ("1", "2", "3") if exhaustive else ("2", "3"):
        assert furthest(expected, weights(tmp_path / stage)) < 1e-5, stage
    told = json.loads((tmp_path / "3" / "metrics" / "metrics.json").read_text())
    plain = json.loads((tmp_path / "ddp" / "metrics" / "metrics.json").read_text())
    assert told["validation_accuracy"] == plain["validation_accuracy"]
    assert told["validation_loss"] == pytest.approx(plain["validation_loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("stage", "precision"), [(0, "bf16"), (2, "fp32"), (3, "fp32")])
def test_a_killed_training_ends_with_the_same_bits(stage: int, precision: str, few: Path, tmp_path: Path) -> None:
    zero = SHARDED if stage == 3 else {}
    config = written(tmp_path / "config.json", {"zero_optimization": {"stage": stage, **zero}})
    options = {**DEEPSPEED, "processes": 2, "epochs": 4, "batch_size": 16, "log_every": 1, "config": config}
    options["precision"] = precision
    train(few, tmp_path / "whole", **options)
    kill_at(25, few, tmp_path / "killed", victim=stage % 2, **options, checkpoint_every=7)
    assert not list((tmp_path / "killed").rglob("*.pt")), "nothing is pickled"
    results = train(few, tmp_path / "killed", **options, checkpoint_every=7)
    assert "continuing from" in results[0].stdout
    assert bit_equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))


@pytest.mark.slow
def test_another_stage_on_another_number_of_ranks_goes_on(few: Path, tmp_path: Path) -> None:
    options = {**DEEPSPEED, "batch_size": 16, "schedule": "constant", "warmup_fraction": 0, "optimizer": "sgd"}
    config = written(tmp_path / "config.json", {"zero_optimization": {"stage": 3, **SHARDED}})
    train(few, tmp_path / "half", **options, epochs=1, processes=2, config=config)
    half = tmp_path / "half" / "checkpoints"
    check_times(tmp_path / "half" / "metrics")
    train(few, tmp_path / "other half", **options, epochs=2, zero_stage=0, resume_from=half)
    train(few, tmp_path / "whole", **{**options, "script": "train_ddp"}, epochs=2)
    assert furthest(weights(tmp_path / "whole"), weights(tmp_path / "other half")) < 1e-5


@pytest.mark.slow
def test_the_guides_example_trains_as_it_stands(few: Path, tmp_path: Path) -> None:
    config = written(tmp_path / "guide.json", GUIDE)
    options = {**DEEPSPEED, "processes": 2, "config": config, "epochs": 2}
    assert "error: DeepSpeed cannot be configured like this" in refused(few, tmp_path, **options)
    assert not (tmp_path / "model").exists()
    result = train(few, tmp_path, **options, on_unsupported="replace")[0]
    assert "WARNING: fp16 cannot be computed on this machine, which has no GPU; replaced by fp32" in result.stdout


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(400)
def test_under_mpi_on_one_and_two_nodes_no_variable_is_set_by_hand(
    digits: Path, tmp_path: Path, exhaustive: bool
) -> None:
    (tmp_path / "pipeline.yaml").write_text(f"""
type: pipeline
jobs:
  train:
    type: command
    component: {ROOT / "components/train_deepspeed/component.yaml"}
    inputs: {{data: {{type: uri_folder, path: {digits}}}, epochs: 1, zero_stage: 3}}
    distribution: {{type: mpi, process_count_per_instance: 1}}
""")
    from tests.local.support import run_json

    found = []
    for shape in ("1x2", "2x1") if exhaustive else ("2x1",):
        run = run_json("pipeline.yaml", "--scale", f"train={shape}", cwd=tmp_path)
        log = "\n".join(p.read_text() for p in Path(run["steps"]["train"]["folder"], "user_logs").glob("*"))
        assert run["exit"] == 0, log[-4000:]
        assert "launched by azureml-mpi" in log
        found.append(weights_of(run["steps"]["train"]))
    alone = weights_of(run_trainer("train_deepspeed", digits, tmp_path, "1x1", "epochs=1", "zero_stage=0"))
    for other in found:
        assert furthest(alone, other) < 1e-5
