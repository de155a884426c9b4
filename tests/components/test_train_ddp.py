"""train_ddp and, by the same script, train_torchrun: the same result on any number of ranks, and after any kill."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from shared.checkpoint import reading
from shared.data import Dataset
from shared.models import load_model
from tests.components.launched import run_launched
from tests.components.training import (
    bit_equal,
    check_times,
    furthest,
    kill_at,
    lines,
    refused,
    train,
    training,
    weights,
    write_digits,
)
from tests.faults import fault_code
from tests.helpers import finish, run_ranks

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("few"), rows=400)


def predictions(data: Path, out: Path) -> np.ndarray:
    split = Dataset.open(data).split("test")
    module, _ = load_model(out / "model")
    with torch.no_grad():
        return module(torch.from_numpy(split.take(np.arange(split.rows))["x"])).argmax(1).numpy()


@pytest.mark.slow
def test_default_mlp_is_the_same_on_any_number_of_ranks_and_under_torchrun(
    digits: Path, tmp_path: Path, exhaustive: bool
) -> None:
    shapes = SHAPES if exhaustive else ((1, 1), (2, 2))
    for nodes, processes in shapes:
        train(digits, tmp_path / f"{nodes}x{processes}", nodes=nodes, processes=processes)
    check_times(tmp_path / "2x2" / "metrics", 4)
    others = [f"{nodes}x{processes}" for nodes, processes in shapes[1:]]
    if exhaustive:
        others.append("torchrun")
        run_launched("train_torchrun", digits, tmp_path / "torchrun", {})
        check_times(tmp_path / "torchrun" / "metrics", 2)
    first, predicted = weights(tmp_path / "1x1"), predictions(digits, tmp_path / "1x1")
    split = Dataset.open(digits).split("test")
    labels = split.take(np.arange(split.rows))["y"]
    assert (predicted == labels).mean() >= 0.97
    for other in others:
        assert furthest(first, weights(tmp_path / other)) < 1e-5
        assert (predictions(digits, tmp_path / other) == predicted).all()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [pytest.param("resnet", marks=pytest.mark.exhaustive), "vit"])
def test_float64_is_exact_on_any_number_of_ranks(
    architecture: str, few: Path, tmp_path: Path, exhaustive: bool
) -> None:
    options = {"architecture": architecture, "precision": "fp64", "epochs": 3}
    shapes = SHAPES if exhaustive else SHAPES[:2]
    for nodes, processes in shapes:
        train(few, tmp_path / f"{nodes}x{processes}", nodes=nodes, processes=processes, **options)
    first = weights(tmp_path / "1x1")
    assert all(tensor.dtype == torch.float64 for tensor in first.values())
    for nodes, processes in shapes[1:]:
        assert furthest(first, weights(tmp_path / f"{nodes}x{processes}")) < 1e-9


# Its state is more than its weights: random numbers of each rank, and statistics of batches.
MINE = """
import torch
from layers import Twice

def build(input_shape, num_outputs):
    size = input_shape[0] * input_shape[1] * input_shape[2]
    return torch.nn.Sequential(
        torch.nn.Flatten(), Twice(), torch.nn.BatchNorm1d(size), torch.nn.Dropout(0.3), torch.nn.Linear(size, num_outputs),
    )
"""
LAYERS = "import torch\n\n\nclass Twice(torch.nn.Module):\n    def forward(self, x):\n        return 2 * x\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "processes", [pytest.param(1, marks=pytest.mark.exhaustive), 2, pytest.param(4, marks=pytest.mark.exhaustive)]
)
def test_a_killed_training_of_ones_own_model_ends_with_the_same_bits(processes: int, few: Path, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(MINE)
    (code / "layers.py").write_text(LAYERS)
    options = {"processes": processes, "epochs": 3, "batch_size": 16, "log_every": 1}
    options |= {"architecture": "mine.py:build", "model_code": code}
    train(few, tmp_path / "whole", **options)
    killed = tmp_path / "killed"
    for step, where in ((20, "step"), (35, "files")):
        kill_at(step, few, killed, where=where, **options, checkpoint_every=7)
    results = train(few, killed, **options, checkpoint_every=7)
    assert "continuing from" in results[0].stdout
    assert bit_equal(weights(tmp_path / "whole"), weights(killed))
    history = json.loads((killed / "metrics" / "metrics.json").read_text())["history"]
    assert [entry["epoch"] for entry in history] == [1, 2, 3]
    assert len(predictions(few, killed)) == 60


@pytest.mark.slow
def test_a_streamed_training_is_the_same_on_any_ranks_and_after_a_kill(few: Path, tmp_path: Path) -> None:
    """Killed in the middle of epochs, and continued on other ranks."""
    data = write_digits(tmp_path / "data", rows=400, shards=9)
    options = {"epochs": 3, "batch_size": 16, "precision": "fp64", "log_every": 1}
    streaming = {"read": "streaming", "shuffle_buffer": 0.006}
    killed = tmp_path / "killed"
    train(data, tmp_path / "whole", **options, **streaming)
    for processes, step in ((4, 16), (1, 33)):
        kill_at(step, data, killed, processes=processes, **options, **streaming, checkpoint_every=5)
    train(data, killed, processes=2, **options, **streaming, checkpoint_every=5)
    assert furthest(weights(tmp_path / "whole"), weights(killed)) < 1e-12
    assert "read shard by shard" in refused(data, killed, **{**options, "epochs": 4}, read="random")


@pytest.mark.slow
def test_accumulation_and_activation_checkpointing_do_not_change_the_result(few: Path, tmp_path: Path) -> None:
    options = {"epochs": 2, "batch_size": 32, "precision": "fp64", "processes": 2}
    train(few, tmp_path / "plain", **options)
    train(few, tmp_path / "spared", **options, accumulation_steps=4, gradient_checkpointing="true")
    assert furthest(weights(tmp_path / "plain"), weights(tmp_path / "spared")) < 1e-12


def test_it_leaves_what_it_promises(few: Path, tmp_path: Path) -> None:
    result = train(few, tmp_path, epochs=2, batch_size=16, log_every=5)[0]
    metrics = json.loads((tmp_path / "metrics" / "metrics.json").read_text())
    assert metrics["epoch"] == len(metrics["history"]) == 2
    assert {"train_loss", "validation_loss", "validation_accuracy", "samples_per_second", "memory_mb"} <= set(metrics)
    assert (tmp_path / "model" / "MLmodel").is_file()
    written = lines(tmp_path)
    assert {"loss", "learning_rate", "samples_per_second"} <= set(written[0]["metrics"])
    assert written[0]["step"] == 5
    assert {line["total"] for line in written} == {metrics["steps"]}
    times = metrics["time"]
    assert times["steps"] == metrics["steps"]
    assert times["slow_ranks"] == []
    assert {f"time/{name}_s" for name in ("data", "compute", "wait", "save")} <= set(written[-2]["metrics"])
    assert "time data" in result.stdout
    assert "epoch 2/2" in result.stdout
    newest = tmp_path / "checkpoints" / f"step-{metrics['steps']:08d}"
    assert reading.newest_valid_checkpoint(tmp_path / "checkpoints") == newest


@pytest.mark.slow
def test_a_finished_training_started_again_only_saves_its_model(few: Path, tmp_path: Path) -> None:
    train(few, tmp_path, epochs=2, batch_size=16)
    before = weights(tmp_path)
    result = train(few, tmp_path, epochs=2, batch_size=16)[0]
    assert "continuing from" in result.stdout
    assert "epoch 2/2" not in result.stdout
    assert bit_equal(before, weights(tmp_path))


@pytest.mark.slow
def test_resume_from_another_folder_and_on_another_number_of_ranks(few: Path, tmp_path: Path) -> None:
    options = {"batch_size": 16, "schedule": "constant"}
    train(few, tmp_path / "half", **options, epochs=2, warmup_fraction=0)
    train(few, tmp_path / "whole", **options, epochs=4, warmup_fraction=0)
    other_half = {"epochs": 4, "warmup_fraction": 0, "resume_from": tmp_path / "half" / "checkpoints", "processes": 2}
    train(few, tmp_path / "other half", **options, **other_half)
    assert furthest(weights(tmp_path / "whole"), weights(tmp_path / "other half")) < 1e-5


@pytest.mark.slow
def test_sigterm_to_one_rank_stops_all_with_a_checkpoint(few: Path, tmp_path: Path) -> None:
    options = {"epochs": 400, "batch_size": 16, "log_every": 2, "processes": 2}
    with training(few, tmp_path, before=fault_code("SIGTERM", 10, 1), **options) as ranks:
        results = finish(ranks)
    assert [result.returncode for result in results] == [143, 143]
    assert "stopped by SIGTERM after step" in results[0].stdout
    newest = reading.newest_valid_checkpoint(tmp_path / "checkpoints")
    assert int(newest.name[5:]) == lines(tmp_path)[-1]["step"]


@pytest.mark.slow
def test_checkpoints_come_by_the_clock_too(few: Path, tmp_path: Path) -> None:
    options = {"epochs": 1, "batch_size": 16, "log_every": 2, "processes": 2, "checkpoint_every": 10**6}
    train(few, tmp_path, **options, checkpoint_minutes=1e-6, keep_checkpoints=3)
    steps = sorted(int(path.name[5:]) for path in (tmp_path / "checkpoints").glob("step-*"))
    assert len(steps) == 3
    assert steps[1] - steps[0] <= 2


@pytest.mark.slow
def test_a_batch_that_does_not_divide_is_refused_with_the_arithmetic(few: Path, tmp_path: Path) -> None:
    said = refused(few, tmp_path, processes=3, batch_size=100, accumulation_steps=2)
    assert said == ("error: batch_size 100 does not divide over 3 ranks x 2 accumulation steps = 6; nearest: 96 or 102")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_size": 4096}, "batch_size 4096 is more than the 280 rows of the train split"),
        ({"precision": "fp16"}, "fp16 needs a GPU"),
        (
            {"architecture": "lstm"},
            "choose mlp, resnet, resnet18, resnet34, resnet50, vit, vit_s, vit_b, vit_small_patch16, vit_base_patch16, or FILE.py:FUNCTION",
        ),
        ({"architecture": "mine.py:build"}, "needs the input model_code"),
        ({"resume_from": "."}, "holds no whole checkpoint"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], text: str, few: Path, tmp_path: Path) -> None:
    assert text in refused(few, tmp_path, **{"batch_size": 16, **options})


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_all_ranks(few: Path, tmp_path: Path) -> None:
    wild = {"learning_rate": 1e30, "optimizer": "sgd", "clip_norm": 0, "warmup_fraction": 0}
    said = refused(few, tmp_path, processes=2, batch_size=16, log_every=3, **wild)
    assert "The loss is" in said
    assert "Lower learning_rate" in said


@pytest.mark.slow
def test_other_settings_than_the_checkpoints_are_refused(few: Path, tmp_path: Path) -> None:
    train(few, tmp_path, epochs=1, batch_size=16)
    said = refused(few, tmp_path, epochs=2, batch_size=32, seed=7)
    assert "batch_size was 16 and is now 32" in said
    assert "seed was 0 and is now 7" in said
    shown = train(few, tmp_path, epochs=2, batch_size=16, learning_rate=0.001)[0].stdout
    assert "changed since that checkpoint: epochs was 1 and is now 2; learning_rate was 0.006 and is now 0.001" in shown


USELESS = """
import torch
from safetensors.torch import load_file


class Useless(torch.nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(64, outputs), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x.flatten(1))


def build(input_shape, num_outputs):
    return Useless(num_outputs)


def narrow(input_shape, num_outputs):
    return Useless(num_outputs - 1)


def frozen(input_shape, num_outputs):
    net = Useless(num_outputs)
    return net.requires_grad_(False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("build", "does not use net.spare.weight, net.spare.bias for its output"),
        ("narrow", r"maps 2 rows to (2, 9); with 10 classes it has to be (2, 10)"),
        ("frozen", "no parameter that trains"),
    ],
)
def test_a_model_of_ones_own_is_tried_before_training(function: str, text: str, few: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USELESS)
    own = {"architecture": f"mine.py:{function}", "model_code": tmp_path, "batch_size": 16}
    assert text in refused(few, tmp_path / "out", processes=2 if function == "build" else 1, **own)


BY_HAND = """
    import os, sys
    import numpy as np
    import torch
    import torch.distributed as dist
    from safetensors.torch import save_file
    from torch import nn
    from shared.data import Dataset
    from shared.settings.command_line import read_settings
    from shared.settings.trainer import RowsTrainerSettings
    from shared.training.core.schedule import LearningSchedule

    outputs = [word for port in ("model", "checkpoints", "metrics") for word in ("--" + port, "unused")]
    given = read_settings(RowsTrainerSettings, words=["--data", {data!r}, *outputs, *{words!r}])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(max(1, os.cpu_count() // ranks))
    dist.init_process_group("gloo")
    torch.manual_seed(int(np.random.SeedSequence((given.seed,)).generate_state(1)[0]))
    layers = [nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)]
    net = nn.Sequential(nn.Flatten(), *layers)
    model = nn.parallel.DistributedDataParallel(net)
    matrices = [weight for weight in net.parameters() if weight.ndim > 1]
    vectors = [bias for bias in net.parameters() if bias.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{{"params": vectors, "weight_decay": 0.0}}, {{"params": matrices, "weight_decay": given.optimizer.suited_decay}}],
        betas=(given.optimizer.momentum, given.optimizer.beta2),
        fused=True,
    )
    dataset, size = Dataset.open(given.data), given.batch.batch_size
    split, statistics = dataset.split("train"), dataset.index.statistics
    steps = split.rows // size
    rate = LearningSchedule.for_steps(given.loop.epochs * steps, given.optimizer.learning_rate, given.schedule)
    for epoch in range(given.loop.epochs):
        batches = split.batches(batch_size=size, seed=given.seed, epoch=epoch, start_batch=0)
        for number, batch in enumerate(batches):
            rows = split.take(batch[rank * size // ranks : (rank + 1) * size // ranks])
            x = (torch.from_numpy(rows["x"]).float() - torch.tensor(statistics.mean)) / torch.tensor(statistics.std)
            for group in optimizer.param_groups:
                group["lr"] = rate(epoch * steps + number)
            loss = nn.functional.cross_entropy(
                model(x.movedim(-1, 1)), torch.from_numpy(rows["y"]), label_smoothing=given.optimizer.label_smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*vectors, *matrices], given.optimizer.clip_norm)
            optimizer.step()
    if rank == 0:
        save_file(net.state_dict(), {out!r})
"""


@pytest.mark.slow
def test_it_is_a_loop_that_is_written_by_hand_to_the_bit(digits: Path, tmp_path: Path) -> None:
    train(digits, tmp_path / "ours", processes=2, epochs=2, batch_size=64)
    words = ["--epochs", "2", "--batch-size", "64"]
    code = BY_HAND.format(data=str(digits), words=words, out=str(tmp_path / "by_hand.safetensors"))
    assert [rank.stderr for rank in run_ranks(code, 1, 2) if rank.returncode] == []
    ours, theirs = weights(tmp_path / "ours"), load_file(tmp_path / "by_hand.safetensors")
    found = {name.removeprefix("net."): value for name, value in ours.items() if name.startswith("net.")}
    assert [tuple(value.shape) for value in found.values()] == [tuple(value.shape) for value in theirs.values()]
    assert all(torch.equal(one, other) for one, other in zip(found.values(), theirs.values(), strict=True))
