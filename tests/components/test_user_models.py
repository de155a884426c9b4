"""Models of users that torch trains and we do not, or whose state no checkpoint sees: one line says so before training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.training import refused, train, write_digits

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


def test_state_that_no_checkpoint_sees_is_named_once(few: Path, tmp_path: Path) -> None:
    results = train(few, tmp_path, processes=2, **own(few, "hidden"))
    shown = "".join(result.stdout for result in results)
    assert shown.count("not in checkpoints, so lost when a training resumes: seen, noise, last_rows. Register") == 1
