"""Lightning's checkpoints without pickle: its dictionaries as safetensors and JSON, whole or not there at all."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.fabric.plugins.io import CheckpointIO

from shared.checkpoint import tree
from shared.checkpoint.choose import check_same, newest_valid
from shared.checkpoint.files import STATE
from shared.checkpoint.ranks import stage_rank_states
from shared.checkpoint.whole import load, save
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.training.core.position import Position, choose_checkpoint, settings_of
from shared.training.torch.state import own_generators, random_state, set_random_state

OURS = "allranks"
"""Key of what we add to Lightning's dictionary."""
STAGED = "staged"
"""Key in that: the files of the ranks' own states, which go into the checkpoint as they are."""


class Checkpoints(CheckpointIO):
    """Writes each checkpoint as `shared.checkpoint` does; the path that Lightning gives is a folder of checkpoints.

    So a ModelCheckpoint of the user's works too: what it calls ``best.ckpt`` is a folder with one checkpoint in it.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write Lightning's dictionary; rank 0 calls this.

        Raises:
            Refusal: naming what in it JSON and safetensors cannot hold.
        """
        del storage_options
        kept, ranks = dict(checkpoint), []
        if OURS in kept:
            kept[OURS] = {name: value for name, value in kept[OURS].items() if name != STAGED}
            ranks = checkpoint[OURS].get(STAGED, [])
        tensors, state = tree.pack(kept, "The module's checkpoint")
        save(path, int(checkpoint["global_step"]), tensors, state, ranks=ranks)
        if ranks:
            shutil.rmtree(ranks[0].parent, ignore_errors=True)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any = None,
        weights_only: bool | None = None,  # noqa: FBT001  # Lightning's signature
    ) -> dict[str, Any]:
        """Read Lightning's dictionary from the newest whole checkpoint of a folder, or from one checkpoint.

        Raises:
            Refusal: if there is none, or if it is damaged.
        """
        del map_location, weights_only  # tensors go to their device when they are copied; nothing here runs code
        found = newest_valid(path)
        if found is None:
            raise Refusal(f"{path} holds no whole checkpoint (step-*/manifest.json and its files).")
        return tree.unpack(*load(found))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a folder of checkpoints, when a ModelCheckpoint of the user's asks for it."""
        shutil.rmtree(path, ignore_errors=True)


class Saver(Callback):
    """Saves and restores one training; between the two, Lightning carries its state.

    Args:
        args: the trainer's; its `checkpoints` is the folder.
        data: the dataset, whose shape has to be the same when the training goes on.
        world: whose rank 0 writes.
        steps_per_epoch: how many there are.
    """

    def __init__(self, args: argparse.Namespace, data: Dataset, world: World, steps_per_epoch: int) -> None:
        self.folder = Path(args.checkpoints)
        self.settings = settings_of(args, data) | {"module": args.module, "module_arguments": args.module_arguments}
        self.trainer: Trainer | None = None
        self._world, self.steps_per_epoch = world, steps_per_epoch
        self._timeout = timedelta(minutes=args.step_timeout)
        self._position = Position()
        self._generators: Mapping[str, Any] | None = None
        self._path: Path | None = None
        self._due = False

    def restore(self, resume_from: str | None) -> tuple[Position, Path | None]:
        """Choose the newest checkpoint of our folder, else of `resume_from`: its position, and its path for Lightning.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = choose_checkpoint(self._world, self.folder, resume_from)
        if path is None:
            return self._position, None
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if OURS not in state:
            raise Refusal(f"The checkpoint {path} was not written by train_lightning.")
        check_same(state[OURS], self.settings, path)
        self._position, self._path = Position(**state[OURS]["position"]), path
        self._world.note(f"continuing from {path}: step {self._position.step}, epoch {self._position.epoch + 1}")
        return self._position, path

    def save(self, position: Position) -> None:
        """Let Lightning write a checkpoint; every rank calls this at the same step.

        At the last step of an epoch it waits for the epoch's end: Lightning would go on with the next one and would
        leave out the validation.
        """
        self._due = position.batch == self.steps_per_epoch
        if not self._due:
            assert self.trainer is not None  # noqa: S101  # Lightning calls on_fit_start first
            self.trainer.save_checkpoint(self.folder)

    def save_if_due(self, position: Position) -> None:
        """Write the checkpoint that waited for the end of the epoch."""
        if self._due:
            self.save(position)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show before the first step that what the module adds to its checkpoints can be written."""
        self.trainer = trainer
        added: dict[str, Any] = {}
        pl_module.on_save_checkpoint(added)
        tree.pack({"hyper_parameters": dict(pl_module.hparams), **added}, "The module's checkpoint")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on with the random numbers of the checkpoint; other ranks start other, freshly seeded sequences."""
        del trainer, pl_module
        if self._generators is not None:
            set_random_state(self._generators)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add what Lightning's dictionary lacks; every rank is here."""
        del trainer, pl_module
        checkpoint[OURS] = {
            "position": asdict(self._position),
            "settings": self.settings,
            "world_size": self._world.world_size,
            STAGED: stage_rank_states(self._world, self.folder, {"generators": random_state()}, self._timeout),
        }

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the random numbers for the start."""
        del trainer, pl_module
        ours = checkpoint[OURS]
        if ours["world_size"] == self._world.world_size:
            old = ours.get("generators")  # of earlier versions: the states of all ranks
            assert self._path is not None  # noqa: S101  # Lightning has loaded it
            self._generators = old[self._world.rank] if old else own_generators(self._path, self._world)
