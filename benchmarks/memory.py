"""Peak memory of a rank while a language model is trained in parts: does it fall with the number of ranks?

    python benchmarks/memory.py

Trains a model of 51 million parameters in float32 for a few steps, with FSDP and with ZeRO 3, on 1, 2 and 4 ranks, and
one of 16 thousand in the same way. The difference of the two peaks (resident size of rank 0, before the first
checkpoint) is what the large model costs: 16 bytes for each parameter (itself, its gradient, two moments) divided by
the ranks, and on top the block that is gathered at a time, activations and buffers of the exchange.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from side_by_side import keep

ROOT = Path(__file__).parents[1]
RANKS = (1, 2, 4)
TRAINERS = {"train_fsdp": [], "train_deepspeed": ["--zero-stage", "3"]}
LARGE = {"layers": 16, "width": 512, "heads": 8}
SMALL = {"layers": 1, "width": 32, "heads": 1}
BYTES_PER_PARAMETER = 16
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""What is freed goes back to the system at once, so that the resident size is what is held: by default glibc keeps it,
in pieces that the next block does not fit into. On a GPU torch's own allocator does better."""
LIMITS = {2: 0.65, 4: 0.45}
"""Largest share of one rank's memory that 2 and 4 ranks may need; half and a quarter is what can be had."""


def main() -> None:
    """Measure and keep."""
    table = []
    with tempfile.TemporaryDirectory() as name:
        data = prepare(Path(name))
        for trainer, more in TRAINERS.items():
            rows = [measure(trainer, more, ranks, data, Path(name)) for ranks in RANKS]
            for row in rows:
                share = round(float(row["mib"]) / float(rows[0]["mib"]), 2)
                limit = LIMITS.get(int(row["ranks"]), 1.0)
                row |= {"share_of_one_rank": share, "limit": limit}
                assert share <= limit, row
            table += rows
    keep("memory", [], table=table)


def prepare(folder: Path) -> Path:
    """A text of a few batches; what it says does not matter here."""
    texts = folder / "texts"
    texts.mkdir()
    for number in range(10):
        (texts / f"{number}.txt").write_text(f"This is text {number} of ten. " * 4)
    arguments = ["--dataset", "files", "--data", str(texts), "--sequence-length", "64"]
    run("prepare_text", [*arguments, "--output-data", str(folder / "data")], 1, folder)
    return folder / "data"


def measure(trainer: str, more: list[str], ranks: int, data: Path, folder: Path) -> dict[str, str | int | float]:
    """Peaks of a large and a small model on so many ranks, in MiB, and what the difference should be."""
    large, small = (peak(trainer, [*more, *words(size)], ranks, data, folder) for size in (LARGE, SMALL))
    parameters = LARGE["layers"] * (4 * LARGE["width"] ** 2 + 3 * LARGE["width"] * 1376)
    return {
        "trainer": trainer,
        "ranks": ranks,
        "peak_mib": round(large),
        "peak_of_small_mib": round(small),
        "mib": round(large - small),
        "states_mib": round(parameters * BYTES_PER_PARAMETER / ranks / 2**20),
    }


def peak(trainer: str, more: list[str], ranks: int, data: Path, folder: Path) -> float:
    """Peak of rank 0 of a training, in MiB, as its metrics tell it."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        outputs = {name: f"{out}/{name}" for name in ("model", "checkpoints", "metrics")}
        given = {"data": data, **outputs, "batch_size": 4, "epochs": 1}
        run(trainer, [*words(given), *more], ranks, Path(out))
        return float(json.loads(Path(outputs["metrics"], "metrics.json").read_text())["memory_mb"])


def words(values: Mapping[str, object]) -> list[str]:
    """Values as arguments of a command."""
    return [text for name, value in values.items() for text in ("--" + name.replace("_", "-"), str(value))]


def run(component: str, arguments: list[str], ranks: int, folder: Path) -> None:
    """Run a component's script on so many ranks of this machine."""
    script = ROOT / "components" / component / f"{component}.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", **GIVE_BACK}
    done = subprocess.run(
        [*launcher, str(script), *arguments], cwd=folder, env=environ, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]


if __name__ == "__main__":
    main()
