"""A training of Hugging Face's Trainer in our checkpoints: its own write pickles, and are switched off."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from shared.checkpoint import tree
from shared.checkpoint.choose import check_same
from shared.checkpoint.whole import load, save_together
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.training.core.position import Position, choose_checkpoint, settings_of
from shared.training.torch.state import random_state, restore_random_state

if TYPE_CHECKING:
    from transformers import Trainer

FORMAT = "transformers"
SETTINGS = ("base_model", "base_config", "sharding")
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Saver:
    """Saves and restores one training; weights and the optimizer's state are whole, whatever they are sharded over.

    Args:
        args: the trainer's; its `checkpoints` is the folder.
        data: the dataset, whose shape has to be the same when the training goes on.
        world: whose rank 0 writes.
        steps_per_epoch: how many there are.
    """

    def __init__(self, args: argparse.Namespace, data: Dataset, world: World, steps_per_epoch: int) -> None:
        self._args, self._data = args, data
        self.folder = Path(args.checkpoints)
        self.settings = settings_of(args, data) | {name: getattr(args, name) for name in SETTINGS}
        self.trainer: Trainer | None = None
        self.steps_per_epoch = steps_per_epoch
        self._world, self._timeout = world, timedelta(minutes=args.step_timeout)
        self._loaded: Mapping[str, Any] | None = None
        self._path: Path | None = None
        self._due = False

    def restore(self, resume_from: str | None) -> Position:
        """Read the newest checkpoint of our folder, else of `resume_from`; its position, or that of the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = choose_checkpoint(self._world, self.folder, resume_from)
        if path is None:
            return Position()
        tensors, state = load(path)
        if state.get("format") != FORMAT:
            raise Refusal(f"The checkpoint {path} was not written by train_transformers.")
        check_same(state, self.settings, path)
        self._loaded, self._path = tree.unpack(tensors, state), path
        position = Position(**state["position"])
        self._world.note(f"continuing from {path}: step {position.step}, epoch {position.epoch + 1}")
        return position

    def save(self, position: Position) -> None:
        """Write a checkpoint; every rank calls this at the same step, rank 0 writes.

        At the last step of an epoch it waits for the epoch's end: the Trainer would take an epoch without a batch for
        the end of the training.
        """
        self._due = position.batch == self.steps_per_epoch
        if not self._due:
            self._write(position)

    def save_if_due(self, position: Position) -> None:
        """Write the checkpoint that waited for the end of the epoch."""
        if self._due:
            self.save(position)

    def _write(self, position: Position) -> None:
        trainer = self.trainer
        assert trainer is not None  # noqa: S101  # it is set before the training begins
        model, optimizer = get_state_dict(trainer.model, trainer.optimizer.optimizer, options=WHOLE)

        def content() -> tuple[dict[str, Any], Any]:
            return tree.pack(whole, "The training's state")

        whole = {
            "format": FORMAT,
            "position": asdict(position),
            "settings": self.settings,
            "model": model,
            "optimizer": optimizer,
            "scaler": trainer.accelerator.scaler.state_dict() if trainer.accelerator.scaler else {},
            "world_size": self._world.world_size,
        }
        own = {"generators": random_state()}
        save_together(self._world, self.folder, position.step, own, content, self._timeout)

    def weights(self) -> dict[str, Any]:
        """Gather the model's weights on rank 0; every rank calls this."""
        assert self.trainer is not None  # noqa: S101
        return dict(get_model_state_dict(self.trainer.model, options=WHOLE))

    def load(self) -> None:
        """Put the checkpoint, if there is one, into what the trainer has wrapped, before its first step."""
        trainer, loaded = self.trainer, self._loaded
        assert trainer is not None  # noqa: S101
        if loaded is None:
            return
        set_state_dict(
            trainer.model,
            trainer.optimizer.optimizer,
            model_state_dict=loaded["model"],
            optim_state_dict=loaded["optimizer"],
            options=WHOLE,
        )
        if trainer.accelerator.scaler:
            trainer.accelerator.scaler.load_state_dict(loaded["scaler"])
        old = {"generators": loaded["random"]} if "random" in loaded else {}
        assert self._path is not None  # noqa: S101  # it was loaded from there
        restore_random_state(self._path, {"world_size": loaded["world_size"], **old}, self._world)
        self._loaded = None  # it is as large as the training
