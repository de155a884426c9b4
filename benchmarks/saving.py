"""How long a training stands still for a checkpoint, against how long the checkpoint is written, on this machine.

Two ranks, started as Azure ML does, save a gigabyte with train_ddp's or train_fsdp's way of dividing it: rank 0 writes
all of it (`replicated`), or each rank its half (`sharded`). Before the first save, for which memory is got behind the
training, and between two saves they compute. Printed are stall and writing time of the first save and of the later
ones, and the most that was read in a save, from the disk or elsewhere, by /proc/self/io::

    python benchmarks/saving.py --folder /tmp/checkpoints
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from side_by_side import keep

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.helpers import azure_variables, finish, free_port, started

LIMIT: Final = 0.1
"""Largest share of the writing time that the training may stand still."""
SECONDS: Final = 5
"""Of training before the first save."""

RANK = """
    import json, sys, time
    from datetime import timedelta
    from pathlib import Path
    import torch
    from shared.checkpoint.tensor_file import ShardPart
    from shared.checkpoint.saving import CheckpointEngine
    from shared.distributed import init

    torch.set_num_threads(1)

    def bytes_read():
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("rchar")).split()[1])

    with init() as world:
        count, rows = {tensors}, 2**30 // {tensors} // 4 // 1024
        each = rows // (world.world_size if {sharded} else 1)
        held = not {sharded} and not world.is_main
        tensors = {{}} if held else {{f"w{{n}}": torch.randn(each, 1024) for n in range(count)}}
        engine = CheckpointEngine(world, Path({folder!r}), timedelta(minutes=10))
        work = torch.randn(512, 512)

        def train(until):
            global work
            while not until():
                work = torch.nn.functional.normalize(work @ work)
                time.sleep(0)

        begun = time.monotonic()
        train(lambda: time.monotonic() - begun > {seconds})
        for step in range(1, {saves} + 1):
            before = bytes_read()
            place = (each * world.rank if {sharded} else 0, 0)
            parts = [ShardPart(name, values, (rows, 1024), place) for name, values in tensors.items()]
            engine.save(step, parts, {{"step": step}}, {{"rank": world.rank}})
            train(lambda: not engine._thread.is_alive())
            engine.wait()
            print(json.dumps({{"step": step, "stall": engine.stall_seconds, "writing": engine.writing_seconds,
                               "read": bytes_read() - before}}), flush=True)
        engine.close()
"""


def main() -> None:
    """Measure both divisions and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the checkpoints go; a temporary folder if left out")
    parser.add_argument("--saves", type=int, default=6)
    asked = parser.parse_args()
    table = []
    for sharded in (False, True):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            table.append(measure(folder, asked.saves, sharded=sharded))
            assert max(table[-1]["first_ratio"], table[-1]["ratio"]) <= LIMIT, table[-1]
            assert table[-1]["most_bytes_read_in_a_save"] < 2**20, table[-1]
    keep("saving", [], table=table)


def measure(folder: str, saves: int, *, sharded: bool) -> dict[str, Any]:
    """Save so many times; the first save, and the medians of the others."""
    code = RANK.format(tensors=64, sharded=sharded, folder=folder, saves=saves, seconds=SECONDS)
    port = free_port()
    with started(code, [azure_variables(rank, 1, 2, port) for rank in range(2)], folder) as ranks:
        results = finish(ranks)
    assert not any(result.returncode for result in results), results[0].stderr
    lines = [json.loads(line) for result in results for line in result.stdout.splitlines() if line.startswith("{")]
    steps = range(1, saves + 1)
    stalls = [max(line["stall"] for line in lines if line["step"] == step) for step in steps]
    writing = [max(line["writing"] for line in lines if line["step"] == step) for step in steps]
    ratios = [stall / write for stall, write in zip(stalls, writing, strict=True)]
    return {
        "division": "sharded" if sharded else "replicated",
        "first_stall_seconds": round(stalls[0], 3),
        "first_writing_seconds": round(writing[0], 3),
        "first_ratio": round(ratios[0], 3),
        "stall_seconds": round(statistics.median(stalls[1:]), 3),
        "writing_seconds": round(statistics.median(writing[1:]), 3),
        "ratio": round(statistics.median(ratios[1:]), 3),
        "most_bytes_read_in_a_save": max(line["read"] for line in lines),
    }


if __name__ == "__main__":
    main()
