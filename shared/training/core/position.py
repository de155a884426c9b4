"""Where a training is, and which checkpoint it goes on from; no framework is needed to say so."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from shared.checkpoint.files import KeepRule
from shared.checkpoint.reading import (
    CheckpointReader,
    agree_on_damage,
    check_same_settings,
    checkpoints_to_try,
    note_damage,
)
from shared.checkpoint.saving import CheckpointEngine
from shared.checkpoint.tensor_file import DamageError
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models.initial import published_file, saved_weights
from shared.settings.fields import ports_of, values_of
from shared.settings.trainer import TrainerSettings
from shared.storage import open_file


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


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Where a training keeps its checkpoints, and from which others it continues while it has none.

    The `identity` is what makes it another training if it differs; the number of ranks may change, and so may the
    `others`, which are named then. Ranks that save wait for each other for the `timeout`. `keep` says which checkpoints
    stay; to `verify` is to read all bytes of one before it is gone on from.
    """

    folder: Path
    resume_from: Path | None
    identity: dict[str, Any]
    timeout: timedelta
    keep: KeepRule = field(default_factory=KeepRule)
    verify: bool = False
    others: dict[str, Any] = field(default_factory=dict)


def plan_checkpoints(settings: TrainerSettings, data: Dataset) -> CheckpointPlan:
    """Take out of the settings and the dataset what saving and restoring need."""
    is_text, values = data.index.task == "language_modeling", values_of(settings)
    same = {
        port.name: values[port.name]
        for port in ports_of(type(settings))
        if port.is_identity and (is_text or port.group != "decoder")
    }
    facts: dict[str, object] = _first_weights(settings, is_text=is_text) | {
        "train rows": data.split("train").order_name,
        "train data": data.train_digest,
        "row shape": list(data.index.arrays["x"].shape),
        "task": data.index.task,
        "classes": len(data.index.classes),
    }
    if is_text and data.index.text is not None:
        facts["documents"] = data.index.text.documents
    kept = settings.checkpoints
    others = {
        name: one for name, one in values.items() if name not in same and isinstance(one, bool | int | float | str)
    }
    return CheckpointPlan(
        kept.checkpoints,
        kept.resume_from,
        same | facts,
        settings.timeouts.step,
        KeepRule(kept.keep_checkpoints, kept.keep_every),
        kept.verify_checkpoints,
        others,
    )


def _first_weights(settings: TrainerSettings, *, is_text: bool) -> dict[str, object]:
    """Say by their bytes which weights a training begins with: their path differs from one mount to the next."""
    network = getattr(settings, "network", None)
    if network is None:
        return {}
    used = not is_text and getattr(network, "module", None) is None
    finders = {"initial_model": saved_weights, "initial_weights": published_file}
    digests: dict[str, object] = {}
    for name, find in finders.items():
        place = getattr(network, name) if used else None
        digests[name] = None if place is None else _digest(find(place))
    return digests


def _digest(file: Path) -> str:
    with open_file(file) as opened:
        return f"sha256 {hashlib.file_digest(opened, 'sha256').hexdigest()}"


class CheckpointSaver(ABC):
    """Saves and restores one training, with whatever framework it is done.

    Its `identity` is that of the plan, and what else makes it another training for this saver. Rank 0 saves and
    restores by itself where it is `alone`, because the others compute for it.

    Attributes:
        own_step: step of the checkpoint in our folder that the training goes on from; None if there is none.
    """

    own_step: int | None = None

    def __init__(self, plan: CheckpointPlan, world: World, *, alone: bool = False) -> None:
        self.plan, self.world, self.identity = plan, world, plan.identity
        self._together = None if alone else world
        self.writer = CheckpointEngine(self._together, plan.folder, plan.timeout, plan.keep)

    @abstractmethod
    def save(self, position: TrainingPosition) -> None:
        """Begin to write a checkpoint; every rank calls this at the same step, and `finish` after the last.

        Raises:
            Refusal: if a weight is not finite: such a checkpoint would only hide the whole one before it.
        """

    def weight_digests(self) -> list[tuple[str, str]]:
        """Give name and digest of each weight that trains and that all ranks have whole; none where they have parts."""
        return []

    def check(self) -> None:
        """Raise what has gone wrong behind the training, if anything; takes no time."""
        self.writer.check()

    def finish(self) -> str | None:
        """Wait until what was saved is a checkpoint; why there is none of the last step that was to be saved, or None.

        Every rank calls this.
        """
        self.writer.wait()
        return self.writer.failure

    @property
    def last_saved(self) -> int | None:
        """Step of the newest checkpoint in our folder, as far as this start knows; None if there is none."""
        return self.own_step if self.writer.saved_step is None else self.writer.saved_step

    def restore(self) -> TrainingPosition:
        """Go on from the newest checkpoint of our folder, else from that of `resume_from`, else from the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training; or if a checkpoint was
                found damaged while the model was filled from it, and there is none before it.
        """
        plan, damaged = self.plan, ""
        for path in checkpoints_to_try(self._together, plan.folder, plan.resume_from, whole=plan.verify):
            state, why = self._try_load(path)
            why = agree_on_damage(self._together, path, why)
            if why is None:
                position = TrainingPosition(**state["position"])
                self.own_step = position.step if path.is_relative_to(plan.folder) else None
                self.world.note(f"continuing from {path}: step {position.step}, epoch {position.epoch + 1}")
                self._note_changes(state["others"])
                return position
            damaged = f"{path}: {why}"
            if self.world.is_main:
                note_damage(path, why)
        if damaged:
            raise Refusal(
                f"The last checkpoint that could be gone on from is damaged ({damaged}). Start again with an empty "
                "checkpoints folder."
            )
        if plan.resume_from:
            raise Refusal(
                f"resume_from {plan.resume_from} holds no whole checkpoint (step-*/manifest.json and its files)."
            )
        return TrainingPosition()

    def _note_changes(self, before: Mapping[str, Any]) -> None:
        now = self.plan.others
        changed = [name for name in now if name in before and before[name] != now[name]]
        if changed:
            pairs = "; ".join(f"{name} was {before[name]!r} and is now {now[name]!r}" for name in changed)
            self.world.note(f"changed since that checkpoint: {pairs}")

    def _try_load(self, path: Path) -> tuple[Mapping[str, Any], str | None]:
        """Put a checkpoint back: its state, and what is wrong with it."""
        try:
            saved = CheckpointReader(path)
            check_same_settings(self._kept(saved), self.identity, path)
            self._load(saved)
            return self._kept(saved), None
        except DamageError as damage:
            return {}, str(damage)
        except OSError as error:
            return {}, f"it cannot be read ({type(error).__name__}: {error})"

    def _state(self, position: TrainingPosition) -> dict[str, Any]:
        """Give what a checkpoint of any framework keeps besides tensors."""
        return {
            "position": asdict(position),
            "settings": self.identity,
            "others": self.plan.others,
            "world_size": self.world.world_size,
        }

    def _kept(self, saved: CheckpointReader) -> Mapping[str, Any]:
        """Give what `_state` gave when a checkpoint was written."""
        return cast("Mapping[str, Any]", saved.state)

    @abstractmethod
    def _load(self, saved: CheckpointReader) -> None:
        """Put a checkpoint of this training back."""

    def _not_finite(self, position: TrainingPosition) -> Refusal:
        self.writer.wait()
        return Refusal(
            f"The weights are not finite after step {position.step}. Lower learning_rate or set clip_norm; the "
            f"checkpoints in {self.plan.folder} are from before."
        )


def values_below(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those whose name begins with the prefix, by the rest of it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
