"""What all trainers can be told; a trainer's own Settings add its groups, and say how a common one differs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from shared.settings.augmentation import AugmentationSettings
from shared.settings.fields import changed_group, input_port, output_port, settings_class
from shared.settings.network import NetworkSettings
from shared.settings.running import CheckpointSettings, LoaderSettings, ReportSettings, TimeoutSettings
from shared.settings.training import (
    LARGEST_SEED,
    BatchSettings,
    LoopSettings,
    OptimizerSettings,
    PrecisionSettings,
    ScheduleSettings,
)


@settings_class
class TrainerSettings:
    """The inputs and outputs of every trainer."""

    ORDER: ClassVar = (
        *("data", "processes_per_node", "network", "base", "decoder", "loop", "batch", "optimizer"),
        *("schedule", "augmentation", "precision", "zero", "parallel", "sharding", "saving", "seed"),
        *("model", "reports", "checkpoints", "metrics", "loader", "timeouts"),
    )
    """The order in which Designer shows the groups of any trainer: what people change first, first."""

    data: Path = input_port(
        'A prepared dataset, as "Prepare data" writes it: images or a table, with classes or with a number to predict.'
    )
    loop: LoopSettings
    batch: BatchSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    precision: PrecisionSettings
    seed: int = input_port(
        "Seed of the initial weights and of the order of the rows.",
        default=0,
        least=0,
        most=LARGEST_SEED,
        is_identity=True,
    )
    model: Path = output_port(
        "The trained model, with its signature; takes raw rows of the dataset and returns one logit per class, or the "
        "predicted value of a regression.",
        kind="mlflow_model",
    )
    reports: ReportSettings
    checkpoints: CheckpointSettings
    metrics: Path = output_port("metrics.json with the final numbers and those of each epoch.")
    loader: LoaderSettings
    timeouts: TimeoutSettings


@settings_class
class RowsTrainerSettings(TrainerSettings):
    """The inputs and outputs of a trainer for images and tables."""

    network: NetworkSettings
    augmentation: AugmentationSettings
    loop: LoopSettings = changed_group(without=["max_steps"])
    optimizer: OptimizerSettings = changed_group(without=["beta2"])
