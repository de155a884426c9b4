"""train_lightning: the weights of train_ddp, the same bits after a kill, MPI without a variable, modules of users."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from shared.checkpoint import reading
from shared.data import Dataset
from shared.models.predictor import load_predictor
from tests.components.training import (
    arguments,
    bit_equal,
    check_times,
    furthest,
    kill_at,
    lines,
    refused,
    train,
    weights,
    write_digits,
)
from tests.shared.serving import served_apart

LIGHTNING = {"script": "train_lightning", "batch_size": 24}

MINE = """
import torch
from lightning import LightningModule
from torch.nn import functional


class Net(LightningModule):
    def __init__(self, input_shape, num_outputs, hidden=16):
        super().__init__()
        self.save_hyperparameters()
        channels, height, width = input_shape
        self.body = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(channels * height * width, hidden), torch.nn.BatchNorm1d(hidden),
            torch.nn.ReLU(), torch.nn.Dropout(0.2),
        )
        self.head, self.spare = torch.nn.Linear(hidden, num_outputs), torch.nn.Linear(2, 2)

    def forward(self, rows):
        return self.head(self.body(rows))

    def training_step(self, batch, batch_idx):
        rows, y = batch
        return functional.cross_entropy(self(rows), y)

    def validation_step(self, batch, batch_idx):
        rows, y = batch
        self.log("val_accuracy", (self(rows).argmax(1) == y).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)]


class Unkept(Net):
    def __init__(self, input_shape, num_outputs):
        super().__init__(input_shape, num_outputs)
        self.hparams["loss"] = torch.nn.MSELoss()


class Idle(LightningModule):
    def forward(self, rows):
        return rows


class Narrow(Net):
    def forward(self, rows):
        return super().forward(rows)[:, 1:]


class Plain(torch.nn.Linear):
    def __init__(self):
        super().__init__(1, 1)
"""

MEASURED = """
import json
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy
from mine import Net as Base


class Seen(Callback):
    def on_train_epoch_end(self, trainer, net):
        seen = {name: float(value) for name, value in trainer.callback_metrics.items()}
        print("SEEN", json.dumps([trainer.optimizers[0].param_groups[0]["lr"], seen]), flush=True)


class Net(Base):
    def __init__(self, input_shape, num_outputs):
        super().__init__(input_shape, num_outputs)
        self.right, self.kept = MulticlassAccuracy(num_outputs, average="micro"), []
        self.apart = MeanMetric(sync_on_compute=False)

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("t_loss", loss)
        self.log_dict({"t_mean": loss, "t_mean_synced": loss}, on_step=False, on_epoch=True, sync_dist=batch_idx < 0)
        return loss

    def on_train_epoch_end(self):
        self.log("t_end", float(self.global_rank))

    def validation_step(self, batch, batch_idx):
        rows, y = batch
        outputs = self(rows)
        losses, right = cross_entropy(outputs, y, reduction="none"), (outputs.argmax(1) == y).float()
        loss = losses.mean()
        self.log("val_loss", loss)
        self.log("val_synced", loss, sync_dist=True, on_step=True, on_epoch=True)
        self.log("val_step", loss, on_step=True, on_epoch=False)
        self.log_dict({"val_given": loss, "val_share": right.mean()}, batch_size=len(y), sync_dist=True)
        self.log("val_rows", float(len(y)), reduce_fx="sum")
        self.log("val_largest", losses.max(), reduce_fx="max", sync_dist=True)
        if batch_idx == 0:
            self.log("val_first", float(len(y)), reduce_fx="sum", on_step=True, on_epoch=True)
        self.right(outputs, y)
        self.apart.update(loss, len(y))
        self.log("val_right", self.right)
        self.log("val_apart", self.apart)
        few = y == 1
        if few.any():
            self.log("val_some", losses[few].mean(), batch_size=few.sum())
        if self.global_rank == 0:
            self.log("val_zero", loss)
        self.kept.append((losses.sum(), len(y)))

    def on_validation_epoch_end(self):
        losses, rows = zip(*self.kept)
        self.kept = []
        self.log("val_end", sum(losses) / sum(rows), sync_dist=True)
        self.log("val_again", self.trainer.callback_metrics["val_loss"])

    def configure_callbacks(self):
        return [EarlyStopping("t_end", patience=9), ModelCheckpoint("best", monitor="val_loss"), Seen()]

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.05)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
"""
"""Logs in all ways; its batch normalization has other statistics on each rank."""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("few"), rows=400, encoded=True)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "mine.py").write_text(MINE)
    (folder / "measured.py").write_text(MEASURED)
    return folder


@pytest.fixture(scope="module")
def expected(few: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The weights that train_ddp ends with."""
    out = tmp_path_factory.mktemp("ddp")
    train(few, out, epochs=2, batch_size=24)
    return weights(out)


@pytest.mark.slow
def test_the_weights_are_those_of_ddp(few: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    train(few, tmp_path, **LIGHTNING, epochs=2, processes=2, accumulation_steps=2)
    assert furthest(expected, weights(tmp_path)) < 1e-5
    check_times(tmp_path / "metrics")


@pytest.mark.slow
def test_a_module_of_the_users_trains_resumes_and_is_served(few: Path, code: Path, tmp_path: Path) -> None:
    own = {"module": "mine.py:Net", "module_arguments": '{"hidden": 24}', "model_code": code}
    options = {**LIGHTNING, **own, "processes": 2, "epochs": 3, "log_every": 1}
    train(few, tmp_path / "whole", **options)
    kill_at(18, few, tmp_path / "killed", **options, checkpoint_every=5)
    train(few, tmp_path / "killed", **options, checkpoint_every=5)
    assert bit_equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert "validation_accuracy" in lines(tmp_path / "whole")[-1]["metrics"]
    newest = reading.newest_valid_checkpoint(tmp_path / "whole" / "checkpoints")
    assert {path.suffix for path in newest.iterdir()} == {".json", ".safetensors"}, "no pickle"

    split = Dataset.open(few).split("test")
    taken = split.take(np.arange(split.rows))
    predict, card = load_predictor(tmp_path / "whole" / "model", "cpu")
    assert card.arguments == {"hidden": 24}
    assert (predict(taken["x"]).argmax(1) == taken["y"]).mean() > 0.8
    assert "lightning==" in (tmp_path / "whole" / "model" / "requirements.txt").read_text()
    (served,) = served_apart(tmp_path, {tmp_path / "whole" / "model": taken["x"]})
    np.testing.assert_array_equal(served.argmax(1), predict(taken["x"]).argmax(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "ranks"),
    [
        (90, 2),
        pytest.param(90, 1, marks=pytest.mark.exhaustive),
        pytest.param(370, 3, marks=pytest.mark.exhaustive),  # several batches, of unlike sizes
        pytest.param(20, 4, marks=pytest.mark.exhaustive),  # fewer rows of validation than ranks
    ],
)
def test_numbers_that_a_module_logs_are_of_all_rows_on_all_ranks(
    rows: int, ranks: int, code: Path, tmp_path: Path
) -> None:
    data = write_digits(tmp_path / "data", rows=rows)
    own = {**LIGHTNING, "batch_size": 12, "module": "measured.py:Net", "model_code": code, "log_every": 2}
    results = train(data, tmp_path, **own, processes=ranks, epochs=4)
    seen = [
        [json.loads(line[5:]) for line in result.stdout.splitlines() if line.startswith("SEEN")] for result in results
    ]
    assert len(seen[0]) == 4
    assert seen == [seen[0]] * ranks
    _, last = seen[0][-1]

    split = Dataset.open(data).split("validation")
    taken = split.take(np.arange(split.rows))
    outputs, y = (
        torch.from_numpy(load_predictor(tmp_path / "model", "cpu")[0](taken["x"])),
        torch.from_numpy(taken["y"]),
    )
    losses = cross_entropy(outputs, y, reduction="none")
    right = (outputs.argmax(1) == y).float().mean()
    loss, wanted = losses.mean(), {"rows": float(len(y)), "largest": losses.max(), "share": right, "right": right}
    wanted |= dict.fromkeys(("loss", "synced", "synced_epoch", "given", "apart", "end", "again"), loss)
    wanted["some"] = losses[y == 1].mean()
    numbers = json.loads((tmp_path / "metrics" / "metrics.json").read_text())
    for name, value in wanted.items():
        assert numbers[f"validation_{name}"] == pytest.approx(float(value), rel=1e-5), name
        assert last[f"val_{name}"] == numbers[f"validation_{name}"], name
    assert last["t_mean"] == last["t_mean_synced"] == pytest.approx(numbers["train_loss"], rel=1e-6)
    reported = [line["metrics"] for line in lines(tmp_path)]
    assert [one["t_loss"] for one in reported if "t_loss" in one][-1] == last["t_loss"]
    steps = [one for one in reported if "val_step" in one]
    assert all(one["val_step"] == one["val_synced_step"] for one in steps)
    assert {one["val_first_step"] for one in steps} == {numbers["validation_first"]}
    assert len(steps) > 4 or steps[-1]["val_step"] == pytest.approx(float(loss), rel=1e-5)

    told = results[0].stdout
    unlike = ranks > 1 and rows > 20
    assert told.count("note: val_largest: it is the max over the batches of all ranks") == (ranks > 1)
    assert told.count(f"note: val_zero: only rank 0 of {ranks} logged it") == (ranks > 1)
    assert told.count("note: t_end: each rank has a value of its own") == (ranks > 1)
    assert told.count("note: val_end: each rank has a value of its own") == unlike
    assert told.count("note: val_apart: each rank has a value of its own") == unlike
    assert told.count("note: val_some: only rank") <= (ranks > 1)
    exact = ("loss", "synced", "step", "given", "share", "rows", "right", "again")
    assert not any(f"note: val_{name}" in told for name in exact)


def test_a_number_of_some_ranks_alone_is_refused() -> None:
    from shared.distributed import Refusal
    from shared.training.lightning.results import RankResults

    with pytest.raises(Refusal, match="The module logs val_loss with a sync_dist_group"):
        RankResults(training=False).log("validation_step", "val_loss", torch.zeros(()), sync_dist_group=object())


REFUSED = [
    ({"module": "mine.py:Idle"}, "does not define training_step, configure_optimizers"),
    ({"module": "mine.py:Plain"}, "is a Plain, not a lightning.LightningModule"),
    (
        {"module": "mine.py:Missing"},
        "has no function or class Missing; it has Net, Unkept, Idle, Narrow, Plain",
    ),
    ({"module": "yours.py:Net"}, "there is no yours.py in"),
    ({"module": "mine.py:Narrow"}, "forward maps 2 rows to (2, 9); it has to be (2, 10)"),
    ({"module": "mine.py:Net", "module_arguments": "{hidden: 3}"}, "module_arguments is not JSON"),
    ({"module": "mine.py:Net", "module_arguments": '{"width": 3}'}, "unexpected keyword argument 'width'"),
]


def test_what_a_module_lacks_is_said_once(few: Path, code: Path, tmp_path: Path) -> None:
    """In this process, where Lightning is imported once: a start of ranks for each would take seconds."""
    from components.train_lightning.train_lightning import Settings
    from shared.distributed import Refusal, init
    from shared.settings.command_line import read_settings
    from shared.training.core.batch_plan import BatchPlan
    from shared.training.core.schedule import LearningSchedule
    from shared.training.lightning.task import make_own_task
    from shared.training.torch.optimization import TrainingPrecision

    with init("torch") as world:
        common = Dataset.open(few), world, TrainingPrecision("fp32", world.device), BatchPlan(24, 1, 1)
        for options, message in REFUSED:
            settings = read_settings(Settings, words=arguments(few, tmp_path, model_code=code, **options))
            with pytest.raises(Refusal) as raised:
                make_own_task(settings, settings.network, *common, LearningSchedule("constant", 0.1, 1, 0))
            assert message in str(raised.value)


def test_weights_that_are_not_finite_are_no_checkpoint(tmp_path: Path) -> None:
    from shared.distributed import Refusal, init
    from shared.training.core.position import CheckpointPlan, TrainingPosition
    from shared.training.lightning.state import TrainingSaver

    module = torch.nn.Linear(2, 2)
    with init("torch") as world:
        saver = TrainingSaver(CheckpointPlan(tmp_path, None, {}, timedelta(minutes=1)), world, steps_per_epoch=9)
        saver._trainer = cast("Any", SimpleNamespace(lightning_module=module, save_checkpoint=lambda folder: None))  # noqa: ARG005
        saver.save(TrainingPosition(batch=3, step=3))
        module.bias.data[0] = float("nan")
        with pytest.raises(Refusal, match="The weights are not finite after step 4"):
            saver.save(TrainingPosition(batch=4, step=4))
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-00000003"]


@pytest.mark.slow
def test_what_cannot_be_kept_is_refused_before_the_first_step(few: Path, code: Path, tmp_path: Path) -> None:
    said = refused(few, tmp_path, **LIGHTNING, module="mine.py:Unkept", model_code=code)
    assert "hyper_parameters.loss is a torch.nn.modules.loss.MSELoss" in said
    assert lines(tmp_path) == []
