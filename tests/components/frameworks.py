"""Trainers as steps of the local engine: real mpirun, real TF_CONFIG, over emulated nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shared.data import Array, Index, Statistics, Target
from shared.data.write import write_index, write_shard
from tests.components.training import weights
from tests.local.support import command, environ, run_json, wait_for

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
    component: str, data: Path, folder: Path, shape: str, *values: str, after_step: int
) -> dict[str, Any]:
    """Run one trainer as above, kill its last rank with SIGKILL after a step, and let the engine start it again."""
    arguments = [component, f"data={data}", *values, "--scale", f"{component}={shape}", "--retries", "1", "--json"]
    folder.mkdir(exist_ok=True)
    with subprocess.Popen(
        command("run", *arguments), cwd=folder, env=environ(**QUIET), stdout=subprocess.PIPE, text=True
    ) as engine:
        wait_for(lambda: _last_step(folder) >= after_step or engine.poll() is not None, 120)
        ranks = [int(entry.name) for entry in Path("/proc").iterdir() if _is_rank(entry, component, folder)]
        os.kill(max(ranks), signal.SIGKILL)
        document = json.loads(engine.communicate()[0])
    step = _succeeded(document["steps"][component], engine.returncode)
    assert step["attempts"] == 2
    return step


def _last_step(folder: Path) -> int:
    lines = [line for path in folder.glob(".allranks/**/metrics.jsonl") for line in path.read_text().splitlines()]
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def _is_rank(process: Path, component: str, folder: Path) -> bool:
    """Whether an entry of /proc is a rank of the trainer that was started in a folder."""
    try:
        script = (process / "cmdline").read_bytes().split(b"\0")[1:2]
        return script == [f"{component}.py".encode()] and (process / "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False


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
