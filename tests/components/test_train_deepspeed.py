"""train_deepspeed: one model in all stages and that of train_ddp, checkpoints for any stage and ranks, MPI."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from shared.models import load_model
from tests.components.frameworks import furthest as furthest_of
from tests.components.frameworks import run_trainer, weights_of
from tests.components.training import bit_equal, check_times, furthest, lines, train, training, weights, write_digits
from tests.helpers import ROOT, finish, run_ranks
from tests.shared.samples import write_language_dataset
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


CURVES = f"""
    import json, sys
    from shared.distributed import init
    sys.path.insert(0, {str(ROOT / "components/train_deepspeed")!r})
    import train_deepspeed
    from shared.settings.command_line import read_settings
    from shared.training.deepspeed import plan_batches

    given = ["--data", sys.argv[1], "--model", "m", "--checkpoints", "c", "--metrics", "e", "--seed", "3",
             "--layers", "2", "--width", "32", "--batch-size", "16", "--accumulation-steps", "2"]
    with init("deepspeed") as world:
        from shared.data import Dataset
        from shared.training.torch.feed import BatchFeed, RowReader
        from shared.training.deepspeed.configuration import make_configuration
        from shared.training.deepspeed.engine import start_engine, whole_parameters
        from shared.training.deepspeed.engine import make_task_model
        from shared.training.torch.objective import objective_of
        from shared.training.torch.meter import LossMeter

        for stage, threshold in ((0, None), (1, None), (2, None), (3, 0), (3, None)):
            args = read_settings(train_deepspeed.Settings, words=[*given, "--zero-stage", str(stage)])
            file = {{}} if threshold is None else {{"zero_optimization": {{"param_persistence_threshold": threshold}}}}
            config = make_configuration(args, file, plan_batches(args.batch, file), world)
            data = Dataset.open(args.data)
            module, _ = make_task_model(args, data, world, world.device)
            engine = start_engine(module, config, world.device)
            reader, meter = RowReader(data.split("train"), world.device, args.loader), LossMeter(world)
            feed = BatchFeed(reader, config.plan, world.rank, args.loop, args.loader, args.seed)
            losses = []
            for batch in feed.epoch(0):
                train_deepspeed.add_gradients(engine, batch, config.plan, objective_of(data.index), meter)
                meter.end_step()
                losses.append(meter.read().loss)
            total = [float(whole.double().abs().sum()) for _, whole in whole_parameters(engine)]
            world.note("CURVE " + json.dumps([losses, total]))
            engine.destroy()
"""


@pytest.mark.exhaustive
def test_the_stages_have_one_loss_curve(tmp_path: Path) -> None:
    text = write_language_dataset(tmp_path / "text", rows=(16 * 50 + 3, 4, 4))
    code = CURVES.replace("sys.argv[1]", repr(str(text)))
    results = run_ranks(code, processes=2, timeout=200)
    assert [result.returncode for result in results] == [0, 0], results[0].stderr
    told = [json.loads(line[6:]) for line in results[0].stdout.splitlines() if line.startswith("CURVE ")]
    (first, sums), *others = told
    assert len(told) == 5
    assert len(first) == 50
    assert first[-1] < first[0] - 2
    for losses, totals in others:
        assert max(abs(one - other) for one, other in zip(first, losses, strict=True)) < 1e-3
        assert totals == pytest.approx(sums, rel=1e-4)


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
    with training(few, tmp_path / "killed", **options, checkpoint_every=7) as ranks:
        until = time.monotonic() + 100
        while len(lines(tmp_path / "killed")) < 25:
            assert time.monotonic() < until
            time.sleep(0.002)
        ranks[random.Random(stage).randrange(2)].kill()
        assert any(result.returncode for result in finish(ranks, 60))
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
    with training(few, tmp_path, **options) as ranks:
        results = finish(ranks, 100)
    assert [result.returncode for result in results] == [2, 2]
    assert "".join(result.stderr for result in results).count("error: DeepSpeed cannot be configured like this") == 1
    assert "Traceback" not in "".join(result.stderr for result in results)
    assert not (tmp_path / "model").exists()
    result = train(few, tmp_path, **options, on_unsupported="replace")[0]
    assert "WARNING: fp16 cannot be computed on this machine, which has no GPU; replaced by fp32" in result.stdout


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_language_model_in_bf16_with_16_bit_weights(tmp_path: Path) -> None:
    text = write_language_dataset(tmp_path / "text", rows=(64, 8, 4))
    options = {**DEEPSPEED, "layers": 1, "width": 32, "batch_size": 8, "epochs": 2, "precision": "bf16"}
    train(text, tmp_path, **options, model_weights="bf16", tie_embeddings="true", processes=2)
    metrics = json.loads((tmp_path / "metrics" / "metrics.json").read_text())
    assert metrics["validation_bits_per_byte"] < 6
    saved = weights(tmp_path)
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    assert load_model(tmp_path / "model")[1].task == "language_modeling"


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
        assert furthest_of(alone, other) < 1e-5
