"""Trainers as steps of the local engine: real mpirun, real TF_CONFIG, over emulated nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.local.support import run_json

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def run_trainer(
    component: str, data: Path, folder: Path, shape: str, *values: str, succeeds: bool = True
) -> dict[str, object]:
    """Run one trainer on ``NODESxPROCESSES``; what `--json` says about its step, with the exit code under ``exit``."""
    document = run_json(component, f"data={data}", *values, "--scale", f"{component}={shape}", cwd=folder, **QUIET)
    step = document["steps"][component]
    logs = "\n".join(path.read_text() for path in sorted((Path(step["folder"]) / "user_logs").glob("*")))
    assert (document["exit"] == 0) == succeeds, logs[-6000:]
    return {**step, "exit": document["exit"], "logs": logs}


def weights_of(step: dict[str, object]) -> dict[str, np.ndarray]:
    """Weights of the saved model."""
    return dict(load_file(Path(step["outputs"]["model"]) / "artifacts" / "model" / "weights.safetensors"))


def furthest(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Largest difference between two sets of weights."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name].astype("f8") - other[name].astype("f8")).max()) for name in one)
