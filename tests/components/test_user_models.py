"""Models of users that torch trains and we do not, or whose state no checkpoint sees: one line says so before training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.components.launched import end_launched, run_launched
from tests.components.training import refused, train, write_digits
from tests.faults import fault_code

MODELS = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, outputs, first=None):
        super().__init__()
        self.first = first or nn.Linear(64, 8)
        self.last = nn.Linear(8, outputs)

    def forward(self, x):
        return self.last(torch.relu(self.first(x.flatten(1))))

class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(17, 8, sparse=True)

    def forward(self, x):
        return self.table(x.clamp(0, 16).long()).mean(1)

class Reentrant(Net):
    def forward(self, x):
        return self.last(checkpoint(self.first, x.flatten(1).requires_grad_(), use_reentrant=True))

class Hidden(Net):
    def __init__(self, outputs):
        super().__init__(outputs)
        self.register_buffer("seen", torch.zeros(1), persistent=False)
        self.noise, self.last_rows = torch.Generator(), torch.zeros(1)

def sparse(input_shape, outputs):
    return Net(outputs, Rows())

def reentrant(input_shape, outputs):
    return Reentrant(outputs)

def hidden(input_shape, outputs):
    return Hidden(outputs)
"""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    (folder / "mine.py").write_text(MODELS)
    return write_digits(folder / "digits", rows=100)


def own(few: Path, function: str) -> dict[str, object]:
    return {"architecture": f"mine.py:{function}", "model_code": few.parent, "batch_size": 16, "epochs": 1}


def test_sparse_gradients_are_refused(few: Path, tmp_path: Path) -> None:
    text = refused(few, tmp_path, **own(few, "sparse"))
    assert "has sparse gradients, of net.first.table.weight" in text
    assert "sparse=False" in text


def test_reentrant_checkpointing_trains(few: Path, tmp_path: Path) -> None:
    train(few, tmp_path, **own(few, "reentrant"))


@pytest.mark.slow
def test_state_that_no_checkpoint_sees_is_named_once(few: Path, tmp_path: Path) -> None:
    results = train(few, tmp_path, processes=2, **own(few, "hidden"))
    shown = "".join(result.stdout for result in results)
    assert shown.count("not in checkpoints, so lost when a training resumes: seen, noise, last_rows. Register") == 1


TORCH = """
import random
import numpy as np
from torch import nn

class Net(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, outputs))

    def forward(self, rows):
        return self.net(rows) * (1 + self.training * (np.random.rand() + random.random()))

def build(input_shape, outputs):
    return Net(outputs)
"""
LIGHTNING = (
    TORCH
    + """
import lightning
import torch
from torch.nn.functional import cross_entropy

class Module(lightning.LightningModule):
    def __init__(self, input_shape, num_outputs):
        super().__init__()
        self.net = Net(num_outputs)

    def forward(self, rows):
        return self.net(rows)

    def training_step(self, batch, batch_idx):
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", cross_entropy(self(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
"""
)
KERAS = """
import keras

def build(input_shape, outputs):
    flat, dense = keras.layers.Flatten(), keras.layers.Dense(16, "relu")
    return keras.Sequential([keras.Input(input_shape), flat, dense, keras.layers.Dropout(0.5), keras.layers.Dense(outputs)])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("trainer", "code", "kind"),
    [
        ("train_ddp", TORCH, "architecture"),
        ("train_lightning", LIGHTNING, "module"),
        ("train_tf_multiworker", KERAS, "architecture"),
        pytest.param("train_lightning", TORCH, "architecture", marks=pytest.mark.exhaustive),
        pytest.param("train_torchrun", TORCH, "architecture", marks=pytest.mark.exhaustive),
        pytest.param("train_horovod", TORCH, "architecture", marks=pytest.mark.exhaustive),
        pytest.param("train_horovod_keras", KERAS, "architecture", marks=pytest.mark.exhaustive),
        pytest.param("train_deepspeed", TORCH, "architecture", marks=pytest.mark.exhaustive),
    ],
)
def test_a_resumed_training_draws_and_steps_as_one_without_a_kill(
    trainer: str, code: str, kind: str, few: Path, tmp_path: Path
) -> None:
    """From the end of an epoch, where Lightning steps a plateau scheduler after the checkpoint."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own.py").write_text(code)
    model = {kind: f"own.py:{'Module' if kind == 'module' else 'build'}", "model_code": tmp_path / "code"}
    options = model | {"batch_size": 16, "epochs": 3, "checkpoint_every": 4}  # four steps an epoch
    run_launched(trainer, few, tmp_path / "whole", options)
    end_launched(trainer, few, tmp_path / "killed", options, before=fault_code("SIGKILL", 6, 1))
    assert "continuing from" in run_launched(trainer, few, tmp_path / "killed", options)[0].stdout
    whole, resumed = (saved_weights(tmp_path / name) for name in ("whole", "killed"))
    assert whole.keys() == resumed.keys()
    assert all((whole[name] == resumed[name]).all() for name in whole)


def saved_weights(out: Path) -> dict[str, Any]:
    (file,) = (out / "model").rglob("*.safetensors")
    return dict(load_file(file))
