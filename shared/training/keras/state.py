"""All that a training with TensorFlow needs to go on: gathered into a checkpoint, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import keras
import numpy as np

from shared.checkpoint.choose import check_same_settings
from shared.checkpoint.whole import load_checkpoint, save_checkpoint
from shared.distributed import Refusal, World
from shared.models.keras.package import load_weights, weight_arrays
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition, values_below
from shared.training.keras.batch_norm import share_statistics


class TrainingSaver(CheckpointSaver):
    """Saves and restores one training: weights, the generators that dropout draws from, the optimizer's variables."""

    def __init__(
        self, plan: CheckpointPlan, world: World, model: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> None:
        super().__init__(plan, world)
        self.identity = plan.identity | {"framework": "keras"}
        self.model, self.optimizer = model, optimizer

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; see `CheckpointSaver`."""
        share_statistics(self.model, self.world)  # so that this run and one that goes on from here are alike
        weights = weight_arrays(self.model)
        if not all(np.isfinite(array.sum(dtype=np.float64)) for array in weights.values()):
            raise self._not_finite(position)
        if self.world.is_main:
            tensors = {f"model.{name}": array for name, array in weights.items()}
            for number, variable in enumerate(self.optimizer.variables):
                tensors[f"optimizer.{number}"] = np.asarray(variable.numpy(), order="C")
            identity, ranks = self.identity, self.world.world_size
            state = {"position": asdict(position), "settings": identity, "world_size": ranks}
            save_checkpoint(self.plan.folder, position.step, tensors, state)

    def _load(self, path: Path) -> Mapping[str, Any]:
        tensors, state = load_checkpoint(path)
        check_same_settings(state, self.identity, path)
        arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
        load_weights(self.model, values_below("model.", arrays), f"The checkpoint {path}")
        saved = values_below("optimizer.", arrays)
        variables = self.optimizer.variables
        if len(saved) != len(variables):
            raise Refusal(f"The checkpoint {path} holds {len(saved)} optimizer variables, not {len(variables)}.")
        for number, variable in enumerate(variables):
            variable.assign(saved[str(number)])
        return state
