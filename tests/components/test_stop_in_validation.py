"""SIGTERM in a long validation: the trainer leaves off, saves the epoch's steps, and the next start validates them.

A node that is taken away gives 30 seconds' notice.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shared.checkpoint.reading import CheckpointReader, newest_valid_checkpoint
from shared.data import Array, Index, Statistics
from shared.data.write import write_index, write_shard
from tests.components.launched import Options, ask_to_stop, launched, run_launched, wait_until_stoppable
from tests.components.training import bit_equal, lines, weights
from tests.helpers import finish
from tests.shared.samples import write_language_dataset, write_text_classification_dataset
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TINY = {"model_type": "bert", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 32}  # fmt: skip
STEPS = 4
OTHERS = ("torchrun", "fsdp", "deepspeed", "lightning", "lightning_module", "transformers", "horovod", "horovod_keras",
          "tf_multiworker", "tf_parameter_server")  # fmt: skip
MODULE = """
import torch
from lightning import LightningModule
from torch.nn import functional


class Net(LightningModule):
    def __init__(self, input_shape, num_outputs):
        super().__init__()
        self.body = torch.nn.Linear(input_shape[0], num_outputs)

    def forward(self, rows):
        return self.body(rows)

    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", functional.cross_entropy(self(batch[0]), batch[1]), sync_dist=True)

    def on_validation_end(self):
        print("validated to the end")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
"""
"""What `train_lightning_module` trains: Lightning validates it, and lowers the rate after each validation."""


def arranged(trainer: str, folder: Path, share: float = 1.0) -> tuple[Path, Options]:
    """A dataset of four steps and a `share` of a validation of seconds; options of two epochs, for train_ddp of one."""
    options: dict[str, object] = {"batch_size": 16, "epochs": 1 + (trainer != "train_ddp"), "log_every": 1}
    options["checkpoint_every"] = 10**6
    if trainer == "train_transformers":
        (folder / "tiny").mkdir()
        (folder / "tiny" / "config.json").write_text(json.dumps(TINY))
        data = write_text_classification_dataset(folder / "text", rows=(64, int(20_000 * share), 4))
        return data, options | {"base_config": folder / "tiny", "sharding": "fsdp"}
    if trainer == "train_fsdp":
        data = write_language_dataset(folder / "text", rows=(64, int(20_000 * share), 4))
        return data, options | {"layers": 1, "width": 32, "heads": 4}
    if trainer == "train_lightning_module":
        (folder / "code").mkdir()
        (folder / "code" / "net.py").write_text(MODULE)
        options |= {"module": "net.py:Net", "model_code": folder / "code"}
    return write_table(folder / "table", int(100_000 * share)), options


def write_table(folder: Path, validation_rows: int) -> Path:
    arrays, draw = {"x": Array((8,), "float32"), "y": Array((), "int64")}, np.random.default_rng(0)
    shards = {}
    for split, rows in {"train": 16 * STEPS, "validation": validation_rows, "test": 4}.items():
        chunks = [{"x": draw.random((rows, 8), "float32"), "y": draw.integers(0, 2, rows)}]
        shards[split] = (write_shard(folder, split, 0, rows=rows, arrays=arrays, chunks=chunks),)
    write_index(folder, Index("classification", arrays, ("a", "b"), Statistics((0.5,) * 8, (0.3,) * 8), shards))
    return folder


@pytest.mark.parametrize(
    "trainer", ["train_ddp", *(pytest.param(f"train_{name}", marks=pytest.mark.exhaustive) for name in OTHERS)]
)
def test_the_steps_are_saved_and_the_next_start_begins_with_the_validation(trainer: str, tmp_path: Path) -> None:
    data, options = arranged(trainer, tmp_path)
    out, script = tmp_path / "out", trainer.removesuffix("_module")
    with launched(script, data, out, options) as ranks:
        wait_for(lambda: lines(out) and lines(out)[-1]["step"] >= STEPS)
        ask_to_stop(ranks)
        results = finish(ranks)
    assert f"stopped by SIGTERM after step {STEPS}" in results[0].stdout, results[0].stderr
    assert "validated to the end" not in results[0].stdout
    assert len(lines(out)) == STEPS  # none for the epoch: nobody went on to the end of its validation
    newest = newest_valid_checkpoint(out / "checkpoints")
    state = CheckpointReader(newest).state
    position = state.get("allranks", state)["position"]  # beside what Lightning keeps
    assert (position["step"], position["batch"], position["history"]) == (STEPS, STEPS, [])
    if trainer != "train_ddp":
        with launched(script, data, out, options) as ranks:
            wait_until_stoppable(ranks)
            ask_to_stop(ranks)
            results = finish(ranks)
        assert f"stopped by SIGTERM after step {STEPS}" in results[0].stdout, results[0].stderr
        assert newest_valid_checkpoint(out / "checkpoints") == newest
    results = run_launched(script, data, out, options)
    assert f"continuing from {newest}: step {STEPS}, epoch 1" in results[0].stdout
    history = json.loads((out / "metrics" / "metrics.json").read_text())["history"]
    epochs = int(str(options["epochs"]))
    assert [entry["step"] for entry in history] == [STEPS * (1 + epoch) for epoch in range(epochs)]
    assert all(entry["validation_loss"] > 0 for entry in history)
    if trainer == "train_lightning_module":
        run_launched(script, data, tmp_path / "whole", options)
        assert bit_equal(weights(out), weights(tmp_path / "whole"))
