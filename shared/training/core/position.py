"""Where a training is, and which checkpoint it goes on from; no framework is needed to say so."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.checkpoint.choose import newest_valid_checkpoint
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.settings.fields import ports_of, values_of
from shared.settings.trainer import TrainerSettings


@dataclass
class TrainingPosition:
    """Where a training is.

    Attributes:
        epoch: whole epochs done.
        batch: batches of the current epoch done; all of them between the last one and the report of the epoch.
        step: optimizer steps done.
        epoch_loss: sum of the losses of the current epoch's steps.
        history: numbers of each epoch done.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    epoch_loss: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    def restore_cut_epoch(self, steps_per_epoch: int) -> None:
        """Put back an epoch that `max_steps` cut short and that the first versions of this library counted as done.

        Raises:
            Refusal: if such a version has already gone on, and has left out the rest of the epoch.
        """
        if self.step == self.epoch * steps_per_epoch + self.batch:
            return
        begun = self.epoch - 1
        ends = [*((number + 1) * steps_per_epoch for number in range(begun)), self.step]
        if self.batch or [entry["step"] for entry in self.history] != ends:
            raise Refusal(
                f"The checkpoint is of step {self.step}, in epoch {self.epoch + 1} of {steps_per_epoch} steps each: an "
                "earlier version of this library left out the rest of an epoch that max_steps had cut short. Train "
                "from the start, with an empty checkpoints folder and no resume_from."
            )
        self.epoch, self.batch = begun, self.step - begun * steps_per_epoch
        self.epoch_loss = self.history[-1]["train_loss"] * self.batch


def choose_checkpoint(world: World, folder: Path, resume_from: Path | None) -> Path | None:
    """Choose the newest whole checkpoint of our folder, else of `resume_from`; None to start from the start.

    Rank 0 chooses for all: another node may see a mounted folder as it was a moment ago.

    Raises:
        Refusal: if `resume_from` holds no whole checkpoint.
    """

    def choose() -> str | None:
        own = newest_valid_checkpoint(folder)
        found = own or (newest_valid_checkpoint(resume_from) if resume_from else None)
        return None if found is None else str(found)

    chosen = world.once(choose, name="choose a checkpoint", scope="job")
    if chosen is None and resume_from:
        raise Refusal(f"resume_from {resume_from} holds no whole checkpoint (step-*/manifest.json and its files).")
    return None if chosen is None else Path(chosen)


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Where a training keeps its checkpoints, and from which others it continues while it has none.

    The `identity` is what makes it another training if it differs; the number of ranks may change. Ranks that save wait
    for each other for the `timeout`.
    """

    folder: Path
    resume_from: Path | None
    identity: dict[str, Any]
    timeout: timedelta


def plan_checkpoints(settings: TrainerSettings, data: Dataset) -> CheckpointPlan:
    """Take out of the settings and the dataset what saving and restoring need."""
    is_text, values = data.index.task == "language_modeling", values_of(settings)
    same = {
        port.name: values[port.name]
        for port in ports_of(type(settings))
        if port.is_identity and (is_text or port.group != "decoder")
    }
    facts = {
        "train rows": data.split("train").order_name,
        "row shape": list(data.index.arrays["x"].shape),
        "task": data.index.task,
        "classes": len(data.index.classes),
    }
    kept = settings.checkpoints
    return CheckpointPlan(kept.checkpoints, kept.resume_from, same | facts, settings.timeouts.step)


class CheckpointSaver(ABC):
    """Saves and restores one training, with whatever framework it is done.

    Its `identity` is that of the plan, and what else makes it another training for this saver.
    """

    def __init__(self, plan: CheckpointPlan, world: World) -> None:
        self.plan, self.world, self.identity = plan, world, plan.identity

    @abstractmethod
    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; every rank calls this at the same step.

        Raises:
            Refusal: if a weight is not finite: such a checkpoint would only hide the whole one before it.
        """

    def restore(self) -> TrainingPosition:
        """Go on from the newest checkpoint of our folder, else from that of `resume_from`, else from the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = self._choose()
        if path is None:
            return TrainingPosition()
        position = TrainingPosition(**self._load(path)["position"])
        self.world.note(f"continuing from {path}: step {position.step}, epoch {position.epoch + 1}")
        return position

    def _choose(self) -> Path | None:
        return choose_checkpoint(self.world, self.plan.folder, self.plan.resume_from)

    @abstractmethod
    def _load(self, path: Path) -> Mapping[str, Any]:
        """Put a checkpoint back, if it is of this training, and give its state."""

    def _not_finite(self, position: TrainingPosition) -> Refusal:
        return Refusal(
            f"The weights are not finite after step {position.step}. Lower learning_rate or set clip_norm; the "
            f"checkpoints in {self.plan.folder} are from before."
        )


def values_below(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those whose name begins with the prefix, by the rest of it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
