"""Batch normalization: what is measured is what is saved, and synchronised it is the same on any number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shared.data import Dataset
from shared.models import load_model
from shared.training.torch.objective import objective_of
from tests.components.training import bit_equal, furthest, train_in_turn, weights, write_digits

OPTIONS: dict[str, Any] = {
    "architecture": "mine.py:build",
    "batch_size": 8,
    "epochs": 1,
    "precision": "fp64",
    "optimizer": "sgd",
    "learning_rate": 0.02,
    "schedule": "constant",
    "warmup_fraction": 0,
}
MINE = """
import torch


def build(input_shape, num_outputs):
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4, momentum=None), torch.nn.Tanh(), torch.nn.Flatten(),
        torch.nn.Linear(144, 24), torch.nn.BatchNorm1d(24, affine=False), torch.nn.Linear(24, num_outputs),
    )
"""
NET = """
import torch
from lightning import LightningModule
from mine import build
from torch.nn import functional


class Net(LightningModule):
    def __init__(self, input_shape, num_outputs):
        super().__init__()
        self.net = build(input_shape, num_outputs)

    def forward(self, rows):
        return self.net(rows)

    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", functional.cross_entropy(self(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), rows=400)


def reported(out: Path) -> float:
    return json.loads((out / "metrics" / "metrics.json").read_text())["validation_loss"]


def measured(data: Path, model: Path) -> float:
    """Validation loss of the saved model."""
    dataset, (module, _) = Dataset.open(data), load_model(model)
    split, objective = dataset.split("validation"), objective_of(dataset.index, split="validation")
    arrays = split.take(np.arange(split.rows))
    with torch.no_grad():
        sums = objective.measure(module(torch.from_numpy(arrays["x"])), torch.from_numpy(arrays["y"]))
    return objective.metrics(sums.tolist(), split.rows)["loss"]


@pytest.mark.slow
def test_the_saved_model_is_measured_and_synchronised_it_is_that_of_one_rank(
    digits: Path, tmp_path: Path, exhaustive: bool
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(MINE)
    (code / "net.py").write_text(NET)
    ddp: dict[str, object] = {"model_code": code}
    trainers, synced = {"ddp": ddp}, {"sync_batch_norm": "true"}
    if exhaustive:
        trainers["lightning"] = ddp | {"script": "train_lightning"}
        trainers["own"] = ddp | {"script": "train_lightning", "module": "net.py:Net"}
    runs: dict[str, dict[str, object]] = {
        **trainers,
        **{f"{name} synced": given | synced for name, given in trainers.items()},
        "whole": ddp | synced | {"epochs": 2},
        "continued": ddp | synced | {"epochs": 2, "resume_from": tmp_path / "ddp synced" / "checkpoints"},
    }
    if exhaustive:
        runs["deepspeed synced"] = ddp | synced | {"script": "train_deepspeed", "precision": "fp32"}
    told = train_in_turn(digits, [(tmp_path / "alone", ddp | synced)], **OPTIONS)[0]
    assert "note: sync_batch_norm has no effect here: one rank has all rows of a batch" in told
    train_in_turn(digits, [(tmp_path / name, given) for name, given in runs.items()], processes=2, **OPTIONS)
    found = {name: weights(tmp_path / name) for name in runs}
    for name in runs:
        assert reported(tmp_path / name) == pytest.approx(measured(digits, tmp_path / name / "model"), rel=1e-6), name
    for name, close in {"ddp": 1e-9, "lightning": 1e-9, "deepspeed": 1e-3}.items():
        if f"{name} synced" in found:
            assert furthest(weights(tmp_path / "alone"), found[f"{name} synced"]) < close, name
    for name in trainers:
        assert furthest(found[name], found[f"{name} synced"]) > 0.01, name
    assert bit_equal(found["whole"], found["continued"])
