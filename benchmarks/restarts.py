"""Kill a random rank of a training again and again, each time after a new checkpoint, and compare the model in the end.

    python benchmarks/restarts.py --cycles 100

Nothing is asked for but the run: the engine starts the step again by itself. The same training runs undisturbed first;
both models have to be equal to the bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from side_by_side import keep

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def started(folder: Path, target: str, *values: str) -> subprocess.Popen[str]:
    """A run, whose one document comes at its end."""
    argv = [sys.executable, "-m", "allranks", "run", target, *values, "--json"]
    return subprocess.Popen(argv, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def step_of(run: subprocess.Popen[str], name: str) -> dict[str, Any]:
    """What became of its step; ends this program where that failed."""
    document = json.loads(run.communicate()[0])
    step: dict[str, Any] = document["steps"][name]
    if step["status"] != "succeeded":
        sys.exit(f"{name}: {step['status']} after {step['attempts']} attempts: {step['failure']}")
    return step


def newest_step(folder: Path) -> int:
    """Of the checkpoints of a run that goes on."""
    found = folder.glob(".allranks/work/*/outputs/checkpoints/step-*/manifest.json")
    return max((int(path.parent.name.removeprefix("step-")) for path in found), default=0)


def ranks_in(folder: Path) -> list[int]:
    """The ranks of the trainer that run below a folder, without the processes that they have started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if words[1:2] == [b"train_ddp.py"] and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def kill_ranks(run: subprocess.Popen[str], folder: Path, cycles: int, chance: random.Random) -> int:
    """Kill one rank after each new checkpoint, so many times; how many it were before the run was over."""
    before, killed = 0, 0
    while killed < cycles and run.poll() is None:
        newest, ranks = newest_step(folder), ranks_in(folder)
        if newest > before and ranks:
            os.kill(chance.choice(ranks), signal.SIGKILL)
            before, killed = newest, killed + 1
            print(f"{killed}: at step {newest}", file=sys.stderr, flush=True)
        time.sleep(0.02)
    return killed


def model_bytes(step: dict[str, Any]) -> dict[str, bytes]:
    """The files of a model by name, without the report of how long things took."""
    folder = Path(step["outputs"]["model"])
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def main() -> None:
    """Kill, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--every", type=int, default=4, help="steps between two checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as root:
        quiet, disturbed = Path(root, "quiet"), Path(root, "disturbed")
        for folder in (quiet, disturbed):
            folder.mkdir()
        data = step_of(started(quiet, "prepare_data"), "prepare_data")["outputs"]["data"]
        values = [f"data={data}", f"epochs={max(2, args.cycles)}", f"checkpoint_every={args.every}", "seed=3"]
        expected = model_bytes(step_of(started(quiet, "train_ddp", *values), "train_ddp"))
        run = started(disturbed, "train_ddp", *values)
        killed = kill_ranks(run, disturbed, args.cycles, random.Random(args.seed))  # noqa: S311 it chooses a rank
        step = step_of(run, "train_ddp")
        is_equal = bool(expected) and model_bytes(step) == expected
    keep(
        "restarts",
        [],
        cycles=killed,
        recovered=step["restarts"],
        model_equal_to_the_bit=is_equal,
        causes=sorted(set(step["restart_causes"])),
        lost_steps=step["lost_steps"],
        goodput=step["goodput"],
        seconds=round(time.perf_counter() - began, 1),
    )
    if not is_equal or step["restarts"] < killed:
        sys.exit(1)


if __name__ == "__main__":
    main()
