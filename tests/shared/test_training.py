"""What the trainers share: batch arithmetic, learning rate, batches on each rank, optimizers, activations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from shared.data import Dataset
from shared.distributed import Refusal
from shared.models import build_network
from shared.settings.command_line import read_settings
from shared.settings.network import NetworkSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import ScheduleSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.schedule import LearningSchedule
from shared.training.torch import feed as training_data
from shared.training.torch.feed import BatchFeed, RowReader
from shared.training.torch.optimization import (
    TrainingPrecision,
    checkpoint_activations,
    make_optimizer,
    set_learning_rate,
)
from tests.components.training import write_digits
from tests.helpers import run_python

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerSettings):
    network: NetworkSettings


def parsed(*words: str) -> Settings:
    ports = ["--data", "d", "--model", "m", "--checkpoints", "c", "--metrics", "x"]
    return read_settings(Settings, words=[*ports, *words])


@given(st.integers(1, 500), st.integers(1, 12), st.integers(1, 6))
def test_a_plan_splits_evenly_or_names_the_nearest_that_do(batch: int, ranks: int, accumulation: int) -> None:
    parts = ranks * accumulation
    if batch % parts == 0:
        plan = BatchPlan(batch, ranks, accumulation)
        assert plan.rows_per_pass * parts == plan.rows_per_rank * ranks == batch
        return
    with pytest.raises(Refusal) as refusal:
        BatchPlan(batch, ranks, accumulation)
    nearest = [int(word) for word in str(refusal.value).rpartition("nearest: ")[2].split(" or ")]
    assert all(value % parts == 0 and value > 0 and abs(value - batch) < parts for value in nearest)


def test_the_arguments_and_the_refusal_need_no_torch(tmp_path: Path) -> None:
    code = """
import sys
from shared.training.core.batch_plan import plan_batches
from shared.settings.training import BatchSettings
try:
    plan_batches(BatchSettings(batch_size=3, accumulation_steps=2))
finally:
    print("torch" in sys.modules)
"""
    done = run_python(code, cwd=tmp_path, returncode=2)
    assert done.stdout == "False\n"
    assert "nearest: 2 or 4" in done.stderr


def test_the_schedule_rises_peaks_and_falls() -> None:
    cosine = LearningSchedule.for_steps(100, 0.5, ScheduleSettings(warmup_fraction=0.1))
    rates = [cosine(step) for step in range(100)]
    assert rates[10] == max(rates) == 0.5
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[0] < 0.05
    assert cosine(100) == pytest.approx(0, abs=1e-15)
    assert LearningSchedule("linear", 1.0, 10, 0)(5) == 0.5
    assert LearningSchedule("constant", 1.0, 10, 0)(9) == 1.0
    assert LearningSchedule("cosine", 1.0, 4, 4)(3) < 1.0


def test_weight_decay_suits_the_optimizer_and_spares_vectors() -> None:
    assert parsed().optimizer.suited_decay == 0.3
    assert parsed("--optimizer", "sgd").optimizer.suited_decay == 0.0005
    assert parsed("--weight-decay", "0").optimizer.suited_decay == 0.0
    optimizer = make_optimizer(build_network("mlp", (8, 8, 1), 3), parsed("--weight-decay", "0.7").optimizer)
    decays = {p.ndim: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays == {1: 0.0, 2: 0.7}
    set_learning_rate(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.25}


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("momentum", ["0", "0.9"])
def test_each_optimizer_makes_the_loss_smaller(name: str, momentum: str) -> None:
    torch.manual_seed(0)
    net, args = nn.Linear(4, 1), parsed("--optimizer", name, "--learning-rate", "0.05", "--momentum", momentum)
    optimizer, precision = make_optimizer(net, args.optimizer), TrainingPrecision("fp32", CPU)
    x = torch.randn(32, 4)
    losses = []
    for _ in range(30):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        precision.step(optimizer, 1.0)
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_clipping_bounds_the_step() -> None:
    net = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    before = float(net.weight)
    (net(torch.ones(1)) * 1000).sum().backward()
    TrainingPrecision("fp32", CPU).step(optimizer, 0.5)
    assert before - float(net.weight) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("architecture", ["mlp", "resnet", "vit"])
def test_activation_checkpointing_gives_the_same_gradients(architecture: str) -> None:
    x = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    grads = []
    for spared in (False, True):
        torch.manual_seed(0)
        net = build_network(architecture, (8, 8, 1), 3).double()
        names = list(net.state_dict())
        if spared:
            checkpoint_activations(net)
        net(x).square().sum().backward()
        assert list(net.state_dict()) == names
        grads.append([parameter.grad for parameter in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True) if a is not None and b is not None)
    with pytest.raises(Refusal, match="attribute `blocks`"):
        checkpoint_activations(nn.Linear(2, 2))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset.open(write_digits(tmp_path_factory.mktemp("data"), rows=200))


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("workers", ["0", "1", "3"])
def test_ranks_together_see_each_global_batch_from_any_start(
    held: bool, workers: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "HELD_SPLIT_BYTES", 2**20 if held else 0)
    args = parsed("--loader-workers", workers, "--prefetch", "2")
    reader = RowReader(dataset.split("train"), CPU, args.loader)
    assert (reader.held is not None) == held
    alone = list(BatchFeed(reader, BatchPlan(24, 1, 1), 0, args.loop, args.loader, args.seed).epoch(3))
    assert len(alone) == 140 // 24
    for start in (0, 2, 5):
        feeds = [
            BatchFeed(reader, BatchPlan(24, 4, 2), rank, args.loop, args.loader, args.seed).epoch(3, start)
            for rank in range(4)
        ]
        parts = list(zip(*feeds, strict=True))
        assert len(parts) == len(alone) - start
        for whole, split in zip(alone[start:], parts, strict=True):
            assert torch.equal(whole[0], torch.cat([rows for rows, _ in split]))
            assert torch.equal(whole[1], torch.cat([labels for _, labels in split]))
