"""A training of Hugging Face's Trainer in our checkpoints: its own write pickles, and are switched off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from transformers import PreTrainedModel, Trainer

from shared.checkpoint import tree
from shared.checkpoint.choose import check_same_settings
from shared.checkpoint.pieces import ShardPart
from shared.checkpoint.reading import CheckpointReader
from shared.distributed import Refusal, World
from shared.training.core.position import CheckpointPlan, TrainingPosition
from shared.training.torch.passes import DeferringSaver
from shared.training.torch.state import random_state, read_rank_generators, set_random_state
from shared.training.transformers.saving import divided_parts

_FORMAT = "transformers"
_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class TrainingSaver(DeferringSaver):
    """Saves and restores one training; weights and the optimizer's state are whole, whatever they are sharded over."""

    trainer: Trainer
    """To be set before the first step."""

    def __init__(self, plan: CheckpointPlan, world: World, steps_per_epoch: int) -> None:
        super().__init__(plan, world, steps_per_epoch)
        self._loaded: Mapping[str, Any] | None = None
        self._generators: Mapping[str, Any] | None = None

    def _load(self, saved: CheckpointReader) -> Mapping[str, Any]:
        """Read a checkpoint; what it holds is put back by `load`, when the trainer has wrapped the model."""
        path, state = saved.path, saved.state
        if state.get("format") != _FORMAT:
            raise Refusal(f"The checkpoint {path} was not written by train_transformers.")
        check_same_settings(state, self.plan.identity, path)
        self._loaded = tree.unpack_state(saved.tensors(), state)
        self._generators = read_rank_generators(saved, state["world_size"], self.world)
        return cast("Mapping[str, Any]", state)

    def load(self) -> None:
        """Put the checkpoint, if there is one, into what the trainer has wrapped, before its first step."""
        loaded, scaler = self._loaded, self._scaler()
        if loaded is None:
            return
        states = {"model_state_dict": loaded["model"], "optim_state_dict": loaded["optimizer"]}
        set_state_dict(self._model(), self._optimizer(), **states, options=_WHOLE)
        if scaler:
            scaler.load_state_dict(loaded["scaler"])
        if self._generators is not None:
            set_random_state(self._generators)
        self._loaded = None  # it is as large as the training

    def parts(self) -> Iterable[ShardPart]:
        """Give this rank's parts of the weights, by the model's names; nothing where each rank has all of them."""
        return divided_parts(cast("PreTrainedModel", self.trainer.model))

    def _write(self, position: TrainingPosition) -> None:
        model, optimizer = get_state_dict(self._model(), self._optimizer(), options=_WHOLE)
        scaler = self._scaler()
        whole = {
            "format": _FORMAT,
            "position": asdict(position),
            "settings": self.plan.identity,
            "model": model,
            "optimizer": optimizer,
            "scaler": scaler.state_dict() if scaler else {},
            "world_size": self.world.world_size,
        }
        tensors, state = tree.pack_state(whole, "The training's state") if self.world.is_main else ({}, {})
        parts = (ShardPart.whole(name, tensor) for name, tensor in tensors.items())
        self.writer.save(position.step, parts, state, {"generators": random_state()})

    def _model(self) -> nn.Module:
        return cast("nn.Module", self.trainer.model)

    def _optimizer(self) -> torch.optim.Optimizer:
        """Ours, out of what Accelerate has made of it."""
        return cast("torch.optim.Optimizer", self.trainer.optimizer.optimizer)  # type: ignore[union-attr]

    def _scaler(self) -> torch.amp.GradScaler | None:
        return cast("torch.amp.GradScaler | None", self.trainer.accelerator.scaler)
