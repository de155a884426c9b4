"""Measure a trained model on one split of a prepared dataset: exact, whatever the number of ranks.

The split is cut into batches; rank r predicts batches r, r + world size, and so on. A batch holds the same rows on any
number of ranks, so its outputs are the same too. No row is padded or repeated. Rank 0 puts the parts together, and only
it draws.
"""

from __future__ import annotations

import argparse
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data import Dataset, Index, Split
from shared.data.order import Rows
from shared.distributed import Refusal, World, init
from shared.metrics import classify
from shared.models import Card, load_predictor
from shared.models.predictor import Predictor
from shared.regression import regress
from shared.report import Subject, write_classification, write_regression
from shared.tracking import Tracker

Outputs = npt.NDArray[np.floating[Any]]

PARTS = ".parts"  # the ranks' outputs, in the output: the one folder that all nodes share; removed at the end


def main() -> None:
    """Evaluate the model that the command line names."""
    arguments = parser().parse_args()
    with init("torch", timeout=timedelta(minutes=arguments.init_timeout)) as world, Tracker(world) as tracker:
        check(arguments)
        dataset = Dataset.open(arguments.data)
        split = dataset.split(arguments.split)
        model, card = load_predictor(arguments.model, world.device)
        check_fit(card, dataset.index)
        step_timeout = timedelta(minutes=arguments.step_timeout)
        parts: Path = arguments.report / PARTS

        mine = rows_of(world.rank, world.world_size, split.rows, arguments.batch_size)
        outputs = predict(model, split, mine, world)
        save_part(parts, world.rank, outputs)
        world.barrier("predictions", timeout=step_timeout)

        def conclude() -> dict[str, float]:
            whole = merge_parts(parts, world.world_size, split.rows, arguments.batch_size)
            numbers = report(
                arguments.report, whole, labels_of(split, arguments.batch_size), dataset.index, card, split
            )
            shutil.rmtree(parts)
            return numbers

        numbers = world.once(conclude, name="report", scope="job", timeout=step_timeout)
        tracker.log(numbers, step=0)
        tracker.artifacts(arguments.report)
        shown = [f"{name} {numbers[name]:.4f}" for name in ("accuracy", "rmse", "mae", "r2") if name in numbers]
        world.note(f"{', '.join(shown)} on {split.rows} rows of {split.name}")


def parser() -> argparse.ArgumentParser:
    """The arguments, as `component.yaml` gives them."""
    result = argparse.ArgumentParser(description=__doc__)
    result.add_argument("--data", type=Path, required=True, help="a prepared dataset")
    result.add_argument("--model", type=Path, required=True, help="a model that a trainer saved")
    result.add_argument("--split", choices=("train", "validation", "test"), default="test")
    result.add_argument("--batch-size", type=int, default=256, help="rows that a rank predicts at a time")
    result.add_argument("--init-timeout", type=float, default=10.0, help="minutes")
    result.add_argument("--step-timeout", type=float, default=60.0, help="minutes")
    result.add_argument("--report", type=Path, required=True)
    return result


def check(arguments: argparse.Namespace) -> None:
    """Refuse values that make no sense."""
    if arguments.batch_size < 1:
        raise Refusal(f"batch_size {arguments.batch_size}: 1 or more is needed.")


def check_fit(card: Card, index: Index) -> None:
    """Refuse a model that was trained on another kind of data."""
    x = index.arrays["x"]
    if index.task != card.task:
        raise Refusal(f"the model was trained for {card.task}, the data was prepared for {index.task}.")
    problems = []
    if card.input_shape != x.shape:
        problems.append(f"the model takes rows of shape {card.input_shape}, the data has {x.shape}")
    if card.input_dtype != x.dtype:
        problems.append(f"the model was trained on {card.input_dtype}, the data holds {x.dtype}")
    if card.classes != index.classes:
        problems.append(f"the model knows {_named(card.classes)}, the data has {_named(index.classes)}")
    if problems:
        raise Refusal(f"model and data do not fit: {'; '.join(problems)}. Prepare the data as for the training.")


def report(
    folder: Path, outputs: Outputs, labels: npt.NDArray[Any], index: Index, card: Card, split: Split
) -> dict[str, float]:
    """Write the report of the task, and give its numbers."""
    shape = index.arrays["x"].shape
    if index.target is None:
        scores = classify(outputs, labels)
        write_classification(folder, scores, labels, Subject(card.architecture, split.name, shape, index.classes))
        return scores.numbers()
    errors = regress(outputs, labels)
    write_regression(folder, errors, Subject(card.architecture, split.name, shape, target=index.target.name))
    return errors.numbers()


def _named(classes: tuple[str, ...]) -> str:
    shown = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{len(classes)} classes ({shown})"


def rows_of(rank: int, world_size: int, rows: int, batch_size: int) -> list[Rows]:
    """The batches of a rank, as row numbers; those of all ranks together are every row once."""
    starts = range(rank * batch_size, rows, world_size * batch_size)
    return [np.arange(start, min(start + batch_size, rows)) for start in starts]


def predict(model: Predictor, split: Split, batches: list[Rows], world: World) -> Outputs:
    """Outputs of the batches, one below the other.

    Raises:
        Refusal: on every rank, if the model gives something else than finite numbers on any.
    """
    outputs = [model(split.take(rows)["x"]) for rows in batches]
    if world.any(any(not np.isfinite(part).all() for part in outputs), "not finite"):
        raise Refusal("the model's outputs are not finite numbers: its training diverged. Try a lower learning_rate.")
    return np.concatenate(outputs) if outputs else np.empty((0, 0), np.float32)


def save_part(parts: Path, rank: int, outputs: Outputs) -> None:
    """Write a rank's outputs where rank 0 will look for them."""
    parts.mkdir(parents=True, exist_ok=True)
    part = parts / f"rank-{rank:05d}.tmp"
    with part.open("wb") as file:
        np.save(file, outputs, allow_pickle=False)
    part.replace(parts / f"rank-{rank:05d}.npy")


def merge_parts(parts: Path, world_size: int, rows: int, batch_size: int) -> Outputs:
    """Outputs of the whole split in row order: (rows, outputs)."""
    merged: Outputs | None = None
    for rank in range(world_size):
        mine = rows_of(rank, world_size, rows, batch_size)
        if mine:
            part = np.load(parts / f"rank-{rank:05d}.npy", mmap_mode="r", allow_pickle=False)
            merged = np.empty((rows, part.shape[1]), part.dtype) if merged is None else merged
            merged[np.concatenate(mine)] = part
    assert merged is not None  # noqa: S101  # a split has rows
    return merged


def labels_of(split: Split, batch_size: int) -> npt.NDArray[Any]:
    """Labels or targets of the whole split in row order."""
    return np.concatenate([split.take(rows)["y"] for rows in rows_of(0, 1, split.rows, batch_size)])


if __name__ == "__main__":
    main()
