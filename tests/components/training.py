"""A small dataset, and trainers run on it as Azure ML's PyTorch jobs are."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import load_file

from shared.data import Array, Index, Shard, Statistics
from shared.data.write import write_index, write_shard
from shared.data.write.spool import Spool
from shared.data.write.writer import write_picture_shard
from tests.components.support import source_of
from tests.faults import Moment, fault_code
from tests.helpers import ROOT, RankResult, RunningRank, finish, free_port, started_ranks

IMAGE = Array((8, 8, 1), "uint8")
LABEL = Array((), "int64")


def write_digits(folder: Path, *, rows: int | None = None, shards: int = 2, encoded: bool = False) -> Path:
    """Write scikit-learn's digits as a dataset, or so many rows of them: 70 % train, 15 % validation, 15 % test.

    Each split has so many `shards`, of pixels or of `encoded` PNG files with the same.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = digits.images.astype("uint8")[..., None], digits.target.astype("int64")
    order = np.random.default_rng(0).permutation(len(x))[:rows]
    cuts = np.split(order, [int(len(order) * 0.7), int(len(order) * 0.85)])
    arrays = {"x": replace(IMAGE, most_pixels=64) if encoded else IMAGE, "y": LABEL}
    written, sizes = {}, {}
    for split, part in zip(("train", "validation", "test"), cuts, strict=True):
        pieces = np.array_split(part, shards)
        if encoded:
            files = [[png_bytes(picture) for picture in x[piece]] for piece in pieces]
            sizes[split] = sum(len(one) for part in files for one in part)
            written[split] = tuple(
                write_png_shard(folder, split, n, files[n], y[piece], arrays) for n, piece in enumerate(pieces)
            )
            continue
        written[split] = tuple(
            write_shard(folder, split, n, rows=len(piece), arrays=arrays, chunks=[{"x": x[piece], "y": y[piece]}])
            for n, piece in enumerate(pieces)
        )
    train = x[cuts[0]].astype("float64")
    statistics = Statistics((float(train.mean()),), (float(train.std()),))
    classes = tuple("0123456789")
    write_index(folder, Index("classification", arrays, classes, statistics, written, picture_bytes=sizes))
    return folder


def png_bytes(picture: npt.NDArray[np.uint8]) -> bytes:
    """Give a picture of one channel as a PNG file."""
    buffer = BytesIO()
    Image.fromarray(picture[..., 0]).save(buffer, "PNG")
    return buffer.getvalue()


def write_png_shard(
    folder: Path, split: str, number: int, files: list[bytes], y: npt.NDArray[np.int64], arrays: Mapping[str, Array]
) -> Shard:
    """Write a shard of encoded pictures."""
    pictures = Spool((), "uint8")
    pictures.append(np.frombuffer(b"".join(files), np.uint8))
    offsets = np.cumsum([0, *map(len, files)], dtype=np.int64)
    return write_picture_shard(folder, split, number, pictures=pictures, offsets=offsets, y=y, arrays=arrays)


def arguments(data: Path, out: Path, **options: object) -> list[str]:
    """The trainer's arguments: outputs below `out`, options with underscores."""
    given = {"data": data, "model": out / "model", "checkpoints": out / "checkpoints", "metrics": out / "metrics"}
    pairs = {**given, **options}.items()
    return [text for name, value in pairs for text in ("--" + name.replace("_", "-"), str(value))]


@contextmanager
def training(
    data: Path,
    out: Path,
    *,
    nodes: int = 1,
    processes: int = 1,
    script: str = "train_ddp",
    before: str = "pass",
    **options: object,
) -> Iterator[list[RunningRank]]:
    """Start a trainer's ranks with `out` as their working folder; in each the statement `before` comes first."""
    out.mkdir(parents=True, exist_ok=True)
    code = source_of(script, *arguments(data, out, **options), before=before)
    with started_ranks(code, nodes, processes, cwd=out) as ranks:
        yield ranks


def train(data: Path, out: Path, *, nodes: int = 1, processes: int = 1, **options: object) -> list[RankResult]:
    """Train to the end and expect success."""
    with training(data, out, nodes=nodes, processes=processes, **options) as ranks:
        results = finish(ranks)
    assert [result.returncode for result in results] == [0] * len(results), "".join(r.stderr for r in results)
    return results


def kill_at(step: int, data: Path, out: Path, *, victim: int = 0, where: Moment = "step", **options: Any) -> None:
    """Train, and let one of the ranks die of SIGKILL in an optimizer step, counted from the start of the training."""
    with training(data, out, before=fault_code("SIGKILL", step, victim, where=where), **options) as ranks:
        assert finish(ranks)[victim].returncode == -signal.SIGKILL


def refused(data: Path, out: Path, *, processes: int = 1, **options: object) -> str:
    """What rank 0 says when all ranks refuse, once."""
    with training(data, out, processes=processes, **options) as ranks:
        results = finish(ranks)
    assert [result.returncode for result in results] == [2] * processes, "".join(r.stderr for r in results)
    said = [line for result in results for line in result.stderr.splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert "Traceback" not in "".join(result.stderr for result in results)
    return said[0]


def weights(out: Path) -> dict[str, torch.Tensor]:
    """Weights of the saved model, by the names in its files."""
    inside = out / "model" / "artifacts" / "model"
    files = list((inside / "huggingface").glob("*.safetensors")) or [inside / "weights.safetensors"]
    return {name: values for file in files for name, values in load_file(file).items()}


def furthest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Largest difference between two sets of weights."""
    assert one.keys() == other.keys()
    return max((one[name].double() - other[name].double()).abs().max().item() for name in one)


def bit_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of weights are the same, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def check_times(metrics: Path, ranks: int = 2) -> None:
    """Check that the folder `metrics` divides the time of each rank, and has the time of the checkpoints."""
    document = json.loads((metrics / "metrics.json").read_text())
    assert 0 <= document["checkpoint_stall_ms"] <= 1e3 * document["checkpoint_stall_seconds"]
    times = document["time"]
    assert [rank["rank"] for rank in times["ranks"]] == list(range(ranks))
    assert times["steps"] > 0
    for rank in times["ranks"]:
        shares = [rank[f"{name}_share"] for name in ("data", "compute", "wait", "save")]
        assert abs(sum(shares) - 1) < 1e-4
        assert {"compute_s", "wait_s"} <= set(rank)


def lines(out: Path) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl, as far as they are written."""
    path = out / "outputs" / "metrics.jsonl"
    whole, _, _ = path.read_text().rpartition("\n") if path.is_file() else ("", "", "")
    return [json.loads(line) for line in whole.splitlines()]


def train_in_turn(
    data: Path, runs: Sequence[tuple[Path, Mapping[str, object]]], *, processes: int = 1, **options: object
) -> list[str]:
    """Train several times in the same processes, which is as good as new ones and spares their start.

    Args:
        data: the dataset.
        runs: the folder and the further options of each training.
        processes: how many ranks each has.
        options: of all trainings, and the trainer's name as ``script``.

    Returns:
        what rank 0 printed in each.
    """
    lists = []
    for out, further in runs:
        given = {"script": "train_ddp", **options, **further}
        path = ROOT / "components" / str(given["script"]) / f"{given.pop('script')}.py"
        lists.append([str(out), str(free_port()), str(path), *arguments(data, out, **given)])
        out.mkdir(parents=True, exist_ok=True)
    code = f"""
        import os, runpy, sys
        for folder, port, *arguments in {lists!r}:
            os.chdir(folder)
            os.environ["MASTER_PORT"], sys.argv = port, arguments
            try:
                runpy.run_path(arguments[0], run_name="__main__")
            except SystemExit as end:
                if end.code:
                    raise
            print("---- the next training", flush=True)
    """
    with started_ranks(code, 1, processes, cwd=runs[0][0]) as ranks:
        results = finish(ranks)
    assert not any(result.returncode for result in results), "".join(result.stderr for result in results)
    return results[0].stdout.split("---- the next training")[:-1]
