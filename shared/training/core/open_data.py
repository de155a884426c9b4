"""Opening the dataset of a training."""

from __future__ import annotations

from pathlib import Path

from shared.data import Dataset
from shared.distributed import Refusal
from shared.training.core.batch_plan import BatchPlan

_TRAINERS = {
    "classification": "train_ddp or train_torchrun",
    "regression": "train_ddp or train_torchrun",
    "language_modeling": "train_fsdp or train_deepspeed",
    "text_classification": "train_transformers",
}
"""What to use for a dataset that this trainer does not take."""


def open_data(folder: Path, plan: BatchPlan, tasks: tuple[str, ...] = ("classification",)) -> Dataset:
    """Open a prepared dataset and see that a trainer made for `tasks` can train on it.

    Raises:
        Refusal: if it is of another task, or too small for one batch.
    """
    data = Dataset.open(folder)
    if data.index.task not in tasks:
        raise Refusal(
            f"{folder} was prepared for {data.index.task}; this component is for {' and '.join(tasks)}. "
            f"Use {_TRAINERS[data.index.task]}."
        )
    rows = data.split("train").rows
    if rows < plan.batch_size:
        raise Refusal(f"batch_size {plan.batch_size} is more than the {rows} rows of the train split.")
    return data
