"""Lightning's checkpoints without pickle: its dictionaries as safetensors and JSON, whole or not there at all."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from shared.checkpoint import tree
from shared.checkpoint.reading import CheckpointReader, load_checkpoint, newest_valid_checkpoint
from shared.checkpoint.saving import save_checkpoint
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import Refusal, World
from shared.storage import remove_folder
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition
from shared.training.torch.state import (
    has_finite_weights,
    random_state,
    read_rank_generators,
    set_random_state,
    weight_digests,
)

_OURS = "allranks"
"""Key of what we add to Lightning's dictionary."""


class SafetensorsIO(CheckpointIO):
    """Writes each checkpoint as `shared.checkpoint` does; the path that Lightning gives is a folder of checkpoints.

    So a ModelCheckpoint of the user's works too: what it calls ``best.ckpt`` is a folder with one checkpoint in it.
    What goes to the folder `kept_for` is not written but given back by `take`: it is the training's own, which is
    written behind it.
    """

    def __init__(self, kept_for: Path) -> None:
        super().__init__()
        self._kept_for = kept_for
        self._taken: dict[str, Any] = {}
        self.loaded: dict[str, Any] | None = None

    def take(self) -> dict[str, Any]:
        """Give Lightning's dictionary of the last save into `kept_for`, once; empty above rank 0."""
        taken, self._taken = self._taken, {}
        return taken

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write Lightning's dictionary; rank 0 calls this.

        Raises:
            Refusal: naming what in it JSON and safetensors cannot hold.
        """
        if Path(path) == self._kept_for:
            self._taken = checkpoint
            return
        tensors, state = tree.pack_state(checkpoint, "The module's checkpoint")
        save_checkpoint(Path(path), int(checkpoint["global_step"]), tensors, state)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: object = None,
        weights_only: bool | None = None,  # noqa: FBT001  # Lightning's signature
    ) -> dict[str, Any]:
        """Read Lightning's dictionary from the newest whole checkpoint of a folder, or from one checkpoint.

        Raises:
            Refusal: if there is none, or if it is damaged.
        """
        # tensors go to their device when they are copied; nothing here runs code
        if self.loaded is not None:  # the training's own, which the ranks have agreed on
            loaded, self.loaded = self.loaded, None
            return loaded
        found = newest_valid_checkpoint(path)
        if found is None:
            raise Refusal(f"{path} holds no whole checkpoint (step-*/manifest.json and its files).")
        return tree.unpack_state(*load_checkpoint(found))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a folder of checkpoints, when a ModelCheckpoint of the user's asks for it."""
        with suppress(OSError):
            remove_folder(Path(path))


class TrainingSaver(CheckpointSaver, Callback):
    """Saves and restores one training; between the two, Lightning carries its state, from the checkpoint at `path`.

    A checkpoint that is due at the last step of an epoch waits for the epoch's end: Lightning, continuing from that
    step, would take an epoch without a batch for the end of the training, or begin the next one without a validation.
    """

    def __init__(self, plan: CheckpointPlan, world: World, steps_per_epoch: int) -> None:
        super().__init__(plan, world)
        self.steps_per_epoch, self._due, self._defers = steps_per_epoch, False, True
        self.io = SafetensorsIO(plan.folder)
        self._trainer: Trainer | None = None
        self._position = TrainingPosition()
        self._generators: Mapping[str, object] | None = None
        self._late: list[tuple[int, float]] = []
        self.path: Path | None = None

    def restore(self) -> TrainingPosition:
        """Choose what to go on from; see `CheckpointSaver`."""
        self._position = super().restore()
        return self._position

    def _kept(self, saved: CheckpointReader) -> Mapping[str, Any]:
        if _OURS not in saved.state:
            raise Refusal(f"The checkpoint {saved.path} was not written by train_lightning.")
        ours: Mapping[str, Any] = tree.unpack_state({}, saved.state[_OURS])
        return ours

    def _load(self, saved: CheckpointReader) -> None:
        """Read the checkpoint, and leave it to Lightning to put it back."""
        self.io.loaded = tree.unpack_state(saved.tensors(), saved.state)
        kept = self._kept(saved)
        self._generators = read_rank_generators(saved, kept["world_size"], self.world)
        self._late = [(int(number), float(value)) for number, value in kept["late"]]
        self.path = saved.path

    def weight_digests(self) -> list[tuple[str, str]]:
        """Give a digest of each weight; see `CheckpointSaver`."""
        return weight_digests(cast("Trainer", self._trainer).lightning_module)

    def save_if_due(self, position: TrainingPosition) -> None:
        """Write the checkpoint that waited for the end of the epoch."""
        if self._due:
            self.save(position)

    def stop_deferring(self, position: TrainingPosition) -> None:
        """Write what waits, and from now on all at once: the epoch's validation has begun and is left off."""
        self._defers = False
        self.save_if_due(position)

    def save(self, position: TrainingPosition) -> None:
        """Let Lightning gather a checkpoint, in `on_save_checkpoint`, and write it now or at the epoch's end."""
        self._due = self._defers and position.batch == self.steps_per_epoch
        if self._due:
            return
        assert self._trainer is not None  # noqa: S101  # Lightning calls on_fit_start first
        if not has_finite_weights(self._trainer.lightning_module):
            raise self._not_finite(position)
        self._trainer.save_checkpoint(self.plan.folder)
        tensors, state = tree.pack_state(self.io.take(), "The module's checkpoint")
        parts = (ShardPart.whole(name, tensor) for name, tensor in tensors.items())
        self.writer.save(position.step, parts, state, {"generators": random_state()})

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show before the first step that what the module adds to its checkpoints can be written."""
        self._trainer = trainer
        added: dict[str, object] = {}
        pl_module.on_save_checkpoint(added)
        tree.pack_state({"hyper_parameters": dict(pl_module.hparams), **added}, "The module's checkpoint")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on with the random numbers of the checkpoint; other ranks start other, freshly seeded sequences."""
        if self._generators is not None:
            set_random_state(self._generators)
        for number, value in self._late:
            progress = trainer.fit_loop.epoch_loop.scheduler_progress
            progress.increment_ready()
            metric = torch.tensor(value, dtype=torch.float64)
            pl_module.lr_scheduler_step(trainer.lr_scheduler_configs[number].scheduler, metric)
            progress.increment_completed()
        self._late = []

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add what Lightning's dictionary lacks; every rank is here.

        Of a validation that is left off Lightning would make the rest alone, so it is written as one just begun.
        """
        if trainer.validating and not self._defers:
            begun = {"ready": 1, "started": 1, "processed": 0, "completed": 0}
            passes = {"total": begun, "current": begun, "is_last_batch": False}
            checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"] = passes
        at_end = self._position.batch in (0, self.steps_per_epoch)  # 0 once the epoch is counted
        checkpoint[_OURS] = self._state(self._position) | {"late": _late_schedulers(trainer, at_epoch_end=at_end)}


def _late_schedulers(trainer: Trainer, *, at_epoch_end: bool) -> list[tuple[int, float]]:
    """Return number and metric of each ReduceLROnPlateau that Lightning steps after this checkpoint is taken.

    It does so once the callbacks have seen the end of the batch, or of the epoch, whatever they save.
    """
    loop = trainer.fit_loop.epoch_loop
    if not trainer.lightning_module.automatic_optimization or trainer.validating:
        return []
    count = (trainer.current_epoch if at_epoch_end else loop.batch_idx) + 1
    found = []
    for number, config in enumerate(trainer.lr_scheduler_configs):
        metric = trainer.callback_metrics.get(config.monitor or "") if config.reduce_on_plateau else None
        is_due = config.interval == ("epoch" if at_epoch_end else "step") and count % config.frequency == 0
        if metric is not None and is_due and (at_epoch_end or not loop._should_accumulate()):  # noqa: SLF001
            found.append((number, float(metric)))
    return found
