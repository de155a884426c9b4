"""Opening the dataset of a training, what is said about unused inputs, and the description of a model for its rows."""

from __future__ import annotations

import os
from pathlib import Path

from shared.data import Dataset
from shared.data.dataset.index import read_index
from shared.data.dataset.npy_files import is_local
from shared.data.dataset.streamed import ShardStreaming, StreamedDataset, mean_row_bytes
from shared.distributed import Refusal, World
from shared.models.card import ModelCard
from shared.settings.fields import idle_notes
from shared.settings.running import LoaderSettings
from shared.settings.trainer import TrainerSettings
from shared.training.core.batch_plan import BatchPlan

_TRAINERS = {
    "classification": "train_ddp or train_torchrun",
    "regression": "train_ddp or train_torchrun",
    "language_modeling": "train_fsdp or train_deepspeed",
    "text_classification": "train_transformers",
}
"""What to use for a dataset that this trainer does not take."""


def open_data(
    settings: TrainerSettings, plan: BatchPlan, world: World, tasks: tuple[str, ...] = ("classification", "regression")
) -> Dataset:
    """Open the prepared dataset, see that a trainer made for `tasks` can train on it, and note inputs without effect.

    Raises:
        Refusal: if it is of another task, or too small for one batch.
    """
    data = _opened(settings.data, settings.loader)
    if data.index.task not in tasks:
        raise Refusal(
            f"{settings.data} was prepared for {data.index.task}; this component is for {' and '.join(tasks)}. "
            f"Use {_TRAINERS[data.index.task]}."
        )
    rows = data.split("train").rows
    if rows < plan.batch_size:
        raise Refusal(f"batch_size {plan.batch_size} is more than the {rows} rows of the train split.")
    note_unused(settings, data, world)
    if note := slow_reading(data, settings.loader, node_memory()):
        world.note(f"note: {note}")
    return data


def slow_reading(data: Dataset, loader: LoaderSettings, memory: float) -> str:
    """Say what helps where rows are read at random that lie on no disk of the node and are more than its memory holds.

    `auto` does not choose that for itself: the order of the rows would then depend on the machine.
    """
    size = data.index.rows("train") * mean_row_bytes(data.index, "train")
    if loader.read not in ("auto", "random") or size <= memory or is_local(data.folder):
        return ""
    return (
        f"{data.folder} has {size / 1e9:,.0f} GB of training rows on no disk of this node, whose memory is "
        f"{memory / 1e9:,.0f} GB: they travel one by one, in each epoch again. With read streaming whole files travel, "
        "ahead of the training; the order of the rows is another one then."
    )


def node_memory() -> float:
    """Bytes that this node has, or that its container may have."""
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        return min(whole, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return whole


def _opened(folder: Path, loader: LoaderSettings) -> Dataset:
    if loader.read != "streaming":
        return Dataset(folder, read_index(folder), loader.read)
    streaming = ShardStreaming.of_folder(folder, loader.shuffle_buffer, loader.loader_workers)
    return StreamedDataset(folder, read_index(folder), streaming=streaming)


def note_unused(settings: TrainerSettings, data: Dataset, world: World) -> None:
    """Let rank 0 name what was given and has no effect here, so that nobody waits for what will not come."""
    text, pictures = data.index.text is not None, len(data.index.arrays["x"].shape) == 3
    for note in idle_notes(settings, is_text=text, has_pictures=pictures, world_size=world.world_size):
        world.note(f"note: {note}")


def card_of_rows(architecture: str, data: Dataset, framework: str = "torch") -> ModelCard:
    """Describe a model for a dataset that is no text."""
    x, statistics, target = data.index.arrays["x"], data.index.statistics, data.index.target
    assert statistics is not None  # noqa: S101  # only text has none
    return ModelCard(
        architecture=architecture,
        input_shape=x.shape,
        input_dtype=x.dtype,
        classes=data.index.classes,
        mean=statistics.mean,
        std=statistics.std,
        task=data.index.task,
        columns=data.index.columns,
        target=target.name if target else "",
        target_mean=target.mean if target else 0.0,
        target_std=(target.std or 1.0) if target else 1.0,
        framework=framework,
        table=data.index.table.to_json() if data.index.table else {},
    )
