"""All that a training with TensorFlow needs to go on: gathered into a checkpoint, and put back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

import keras
import numpy as np

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import Refusal, World
from shared.models.keras.package import load_weights, weight_arrays
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition, values_below
from shared.training.keras.replicas import share_statistics

_SEEDS_APART = 0x9E3779B1
"""Between the seeds of two ranks: far apart modulo 2^32 for any number of ranks."""


class TrainingSaver(CheckpointSaver):
    """Saves and restores one training: weights, the generators that dropout draws from, the optimizer's variables."""

    def __init__(
        self,
        plan: CheckpointPlan,
        world: World,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        alone: bool = False,
    ) -> None:
        super().__init__(plan, world, alone=alone)
        self.identity = plan.identity | {"framework": "keras"}
        self.model, self.optimizer = model, optimizer

    def restore(self) -> TrainingPosition:
        """Choose what to go on from, and give the generators of each rank a seed of its own; see `CheckpointSaver`."""
        position = super().restore()
        for state in self._generators():  # a seed and a count: https://keras.io/api/random/seed_generator
            state.assign(np.asarray(state.numpy()) + np.array([self.world.rank * _SEEDS_APART % 2**32, 0], state.dtype))
        return position

    def _generators(self) -> list[Any]:
        """The states of dropout's generators, which are no weights."""
        weights = {id(weight) for weight in self.model.weights}
        return [variable for variable in cast("Any", self.model).variables if id(variable) not in weights]

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; see `CheckpointSaver`."""
        share_statistics(self.model, self.world)  # so that this run and one that goes on from here are alike
        weights = weight_arrays(self.model)
        if not all(np.isfinite(array.sum(dtype=np.float64)) for array in weights.values()):
            raise self._not_finite(position)
        if self._together is None:  # Keras reads this count and writes it: steps that overlap have left some out
            cast("Any", self.optimizer).iterations.assign(position.step)
        self.writer.save(position.step, self._parts(weights) if self.world.is_main else (), self._state(position))

    def weight_digests(self) -> list[tuple[str, str]]:
        """Give a digest of each weight, of a worker's GPUs those of the first; see `CheckpointSaver`."""
        variables = [] if self._together is None else self.model.trainable_variables
        return [
            (one.path, hashlib.sha256(np.asarray(one.numpy(), order="C").tobytes()).hexdigest()) for one in variables
        ]

    def _parts(self, weights: Mapping[str, Any]) -> Iterator[ShardPart]:
        for name, array in weights.items():
            yield ShardPart.whole(f"model.{name}", array)
        for number, variable in enumerate(self.optimizer.variables):
            yield ShardPart.whole(f"optimizer.{number}", np.asarray(variable.numpy(), order="C"))
        for number, state in enumerate(self._generators()):
            yield ShardPart.whole(f"generator.{number}", np.asarray(state.numpy(), order="C"))
        if self._together is None:  # a lost worker's step is done again by another one, whatever was applied of it
            self.world.check_peers()

    def _load(self, saved: CheckpointReader) -> None:
        arrays = {name: np.asarray(tensor) for name, tensor in saved.tensors().items()}
        load_weights(self.model, values_below("model.", arrays), f"The checkpoint {saved.path}")
        wanted = {"optimizer.": self.optimizer.variables, "generator.": self._generators()}
        for group, variables in wanted.items():
            kept = values_below(group, arrays)
            if len(kept) != len(variables):
                what = f"{len(kept)} variables of the {group[:-1]}, not {len(variables)}"
                raise Refusal(f"The checkpoint {saved.path} holds {what}.")
            for number, variable in enumerate(variables):
                variable.assign(kept[str(number)])
