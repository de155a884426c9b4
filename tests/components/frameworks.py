"""Trainers as steps of the local engine: real mpirun, real TF_CONFIG, over emulated nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from shared.data import Array, Index, Statistics, Target
from shared.data.write import write_index, write_shard
from tests.components.training import weights
from tests.faults import arm
from tests.local.support import run_json

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def run_trainer(component: str, data: Path, folder: Path, shape: str, *values: str) -> dict[str, Any]:
    """Run one trainer on ``NODESxPROCESSES``; what `--json` says about its step, with its logs."""
    document = run_json(component, f"data={data}", *values, "--scale", f"{component}={shape}", cwd=folder, **QUIET)
    return _succeeded(document["steps"][component], document["exit"])


def _succeeded(step: dict[str, Any], code: int) -> dict[str, Any]:
    logs = "\n".join(path.read_text() for path in sorted((Path(step["folder"]) / "user_logs").glob("*")))
    assert code == 0, logs[-6000:]
    return {**step, "logs": logs}


def run_killed_trainer(
    component: str, data: Path, folder: Path, shape: str, *values: str, step: int, rank: int
) -> dict[str, Any]:
    """Run one trainer as above, let a rank die of SIGKILL in a step, and the engine start it again."""
    folder.mkdir(exist_ok=True)
    arguments = [f"data={data}", *values, "--scale", f"{component}={shape}", "--retries", "1"]
    document = run_json(component, *arguments, cwd=folder, **QUIET, **arm(folder / "fault", "SIGKILL", step, rank))
    done = _succeeded(document["steps"][component], document["exit"])
    assert done["attempts"] == 2
    return done


def write_line(folder: Path, rows: int = 600) -> Path:
    """Write a dataset of a regression: a straight line through five features, far from 0."""
    random = np.random.default_rng(0)
    x = random.normal([0, 5, -2, 100, 0], [1, 2, 3, 10, 1], size=(rows, 5)).astype("float32")
    y = 5000 + x.astype("float64") @ [3, -2, 1, 0.5, 0] + random.normal(0, 0.1, rows)
    arrays = {"x": Array((5,), "float32"), "y": Array((), "float64")}
    shards = {
        split: (write_shard(folder, split, 0, rows=len(part), arrays=arrays, chunks=[{"x": x[part], "y": y[part]}]),)
        for split, part in zip(
            ("train", "validation", "test"), np.split(np.arange(rows), [rows * 7 // 10, rows * 8 // 10]), strict=True
        )
    }
    train = slice(rows * 7 // 10)
    statistics = Statistics(tuple(x[train].mean(0, "f8").tolist()), tuple(x[train].std(0, "f8").tolist()))
    target = Target("y", float(y[train].mean()), float(y[train].std()))
    columns = tuple("abcde")
    write_index(folder, Index("regression", arrays, (), statistics, shards, columns=columns, target=target))
    return folder


def weights_of(step: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Weights of the saved model."""
    return weights(Path(step["outputs"]["model"]).parent)
