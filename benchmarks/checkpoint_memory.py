"""Memory of each rank while a checkpoint is saved, and while a training is filled from one.

    python benchmarks/checkpoint_memory.py

A Llama of 103 million parameters is divided among 2 and 4 ranks by train_fsdp's and train_transformers' own functions,
with the two moments that AdamW keeps: 1,233 MB in all. Their savers write it, and a new start of as many ranks reads
what these and what the other number of ranks has written. Reported is, for the rank where it is most, as a share of
what the rank holds: `staged`, the copy that is written behind the training and that stays for the next save; and how
far the peak rises above what is held and staged while saving, and above what is held in the end while loading.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from memory import prepare
from model_memory import (
    LARGE,
    LIMIT,
    MAKE,
    RANKS,
    SMALL,
    call,
    divided_decoder,
    divided_transformer,
    memory,
    reset_peak,
)
from side_by_side import keep

KINDS = ("train_fsdp", "train_transformers")


def main() -> None:
    """Measure and keep; started by torchrun with a kind, what to do and folders, be one of the ranks."""
    if len(sys.argv) > 1:
        kind, what, *folders = sys.argv[1:]
        measure_rank(kind, what, *map(Path, folders))
        return
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), prepare(Path(name))
        for size, base in ((LARGE, folder / "large"), (SMALL, folder / "small")):
            call(["-c", MAKE, json.dumps(size), str(base)], folder)
        rows = {(kind, ranks): {"kind": kind, "ranks": ranks} for kind in KINDS for ranks in RANKS}
        for what in ("save", "load"):
            for kind, ranks in rows:
                rows[kind, ranks] |= measure_kind(kind, what, ranks, data, folder)
    keep("checkpoint_memory", [], table=list(rows.values()))


def measure_kind(kind: str, what: str, ranks: int, data: Path, folder: Path) -> dict[str, float]:
    """The highest share that one of the ranks tells of each thing, and the MiB that a rank holds."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks), __file__, kind, what]
    told = call([*launch, str(data), str(folder)], folder)
    found = [json.loads(line) for line in re.findall(r"MEMORY (\{.*?\})", told)]
    assert len(found) == ranks, told[-3000:]
    row = {"held": round(max(one["held"] for one in found), 1)}
    for name in found[0].keys() - {"held"}:
        row[name] = round(max(max(one[name], 0) / one["held"] for one in found), 3)
        assert row[name] <= LIMIT + (name == "staged"), (kind, ranks, found)
    return dict(sorted(row.items()))


def measure_rank(kind: str, what: str, data: Path, folder: Path) -> None:
    """Save or load the small model, then the large one, and say how far memory rose."""
    from shared.data import Dataset
    from shared.distributed import init

    with init("torch") as world:
        for size in ("small", "large"):
            told: dict[str, float] = {}
            place, opened = folder / f"{kind}-{size}", Dataset.open(data)
            for read in (0,) if what == "save" else RANKS:
                before = reset_peak()
                base = folder / size
                is_ours = kind == "train_fsdp"
                module = divided_decoder(base, opened, world)[0] if is_ours else divided_transformer(base, world)
                if what == "save":
                    told = save_twice(kind, module, world, place, before)
                else:
                    told |= load_one(kind, module, world, place, read, before)
                world.barrier("measured")
        sys.stdout.write(f"MEMORY {json.dumps(told)}\n")  # in one piece, where two ranks write
        sys.stdout.flush()


def save_twice(kind: str, module: Any, world: Any, place: Path, before: float) -> dict[str, float]:
    """Save what a step has left; the copy of the first save is used again by the second."""
    import torch

    from shared.training.core.position import TrainingPosition

    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
        optimizer.step()  # one gradient at a time
        optimizer.zero_grad()
    saver = make_saver(kind, module, optimizer, world, place / f"of-{world.world_size}")
    held, peaks = reset_peak(), []
    for step in (1, 2):
        saver.save(TrainingPosition(step=step))
        saver.finish()
        peaks.append(memory("VmHWM"))
    staged = reset_peak() - held
    return {"held": held - before, "staged": staged, "saving": max(peaks) - held - staged}


def load_one(kind: str, module: Any, world: Any, place: Path, written_by: int, before: float) -> dict[str, float]:
    """Fill a model and its optimizer from what so many ranks have written."""
    import torch

    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    saver = make_saver(kind, module, optimizer, world, place / f"of-{written_by}")
    reset_peak()
    at = saver.restore()
    if kind == "train_transformers":
        saver.load()
    peak, held = memory("VmHWM"), reset_peak()
    assert at.step == 2
    assert all(optimizer.state[parameter] for parameter in module.parameters())
    return {"held": held - before, f"loading_of_{written_by}": peak - held}


def make_saver(kind: str, module: Any, optimizer: Any, world: Any, place: Path) -> Any:
    """The trainer's own saver; of the Trainer it needs the optimizer alone."""
    from shared.training.core.position import CheckpointPlan

    plan = CheckpointPlan(place, None, {}, timedelta(minutes=5))
    if kind == "train_fsdp":
        from shared.training.fsdp.state import TrainingSaver

        return TrainingSaver(plan, world, module, optimizer)
    from shared.training.transformers.state import TrainingSaver as TrainerSaver

    saver = TrainerSaver(plan, world, module)
    trainer: Any = SimpleNamespace(
        optimizer=SimpleNamespace(optimizer=optimizer), accelerator=SimpleNamespace(scaler=None)
    )
    saver.trainer = trainer
    return saver


if __name__ == "__main__":
    main()
