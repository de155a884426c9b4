"""A training of Hugging Face's Trainer in our checkpoints: its own write pickles, and are switched off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel, Trainer

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import Refusal, World
from shared.training.core.position import CheckpointPlan, TrainingPosition
from shared.training.fsdp.pieces import local_piece
from shared.training.fsdp.state import checkpoint_parts, read_parts
from shared.training.torch.state import PartsSaver, read_rank_generators, set_random_state, weight_digests
from shared.training.transformers.divided import reshard_model
from shared.training.transformers.saving import divided_parts, kept_tensors

_FORMAT = "transformers"
_STATES = "optimizer.state."


class TrainingSaver(PartsSaver):
    """Saves and restores one training of a model that `fully_shard` has divided, or that each rank has whole.

    Of what is divided each rank writes and reads its parts, rank 0 writes the rest: nothing is gathered. The Trainer,
    which makes the optimizer when the training begins, is to be set as `trainer` before the first step.
    """

    division = "FSDP2"
    trainer: Trainer

    def __init__(self, plan: CheckpointPlan, world: World, net: PreTrainedModel) -> None:
        super().__init__(plan, world)
        self.identity = plan.identity  # its `sharding` says what divides the model
        self._net = net
        self._states: Mapping[torch.Tensor, dict[str, torch.Tensor]] = {}
        self._scaled: Mapping[str, Any] = {}
        self._generators: Mapping[str, Any] | None = None

    def _kept(self, saved: CheckpointReader) -> Mapping[str, Any]:
        if saved.state.get("format") != _FORMAT:
            raise Refusal(f"The checkpoint {saved.path} was not written by train_transformers.")
        return super()._kept(saved)

    def _load(self, saved: CheckpointReader) -> None:
        """Fill the model, and keep for `load` what there is no optimizer, or no scaler, for yet."""
        self._read(saved)
        self._scaled = saved.state["scaler"]
        self._generators = read_rank_generators(saved, saved.state["world_size"], self.world)

    def load(self) -> None:
        """Put the rest of the checkpoint, if there is one, into what the trainer has made at its start."""
        states = self._optimizer().state
        for parameter, entries in self._states.items():  # the trainer may have moved the model since
            device = local_piece(parameter)[0].device
            states[parameter] = {key: entry.to(device) for key, entry in entries.items()}
        self._states = {}
        scaler = self._scaler()
        if scaler and self._scaled:
            scaler.load_state_dict(dict(self._scaled))
        if self._generators is not None:
            set_random_state(self._generators)

    def parts(self) -> Iterable[ShardPart]:
        """Give this rank's parts of the weights, by the model's names; all of what each rank has whole."""
        reshard_model(self._net)
        return divided_parts(self._net)

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; see `CheckpointSaver`."""
        reshard_model(self._net)  # a validation leaves parameters whole, which are not those that the optimizer knows
        super().save(position)

    def weight_digests(self) -> list[tuple[str, str]]:
        """Give a digest of each weight of a model that each rank has whole; see `CheckpointSaver`."""
        return [] if isinstance(self._net, FSDPModule) else weight_digests(self._net)

    def _parts(self) -> Iterator[ShardPart]:
        states, is_main = self._optimizer().state, self.world.is_main
        return checkpoint_parts(kept_tensors(self._net), states, is_main=is_main, prefix=_STATES)

    def _weights(self) -> Iterator[torch.Tensor]:
        return (local_piece(parameter)[0] for parameter in self._net.parameters())

    def _read(self, saved: CheckpointReader) -> None:
        self._states = read_parts(saved, kept_tensors(self._net), _STATES)

    def _numbers(self) -> dict[str, Any]:
        scaler = self._scaler()
        return {"format": _FORMAT, "scaler": scaler.state_dict() if scaler else {}}

    def _optimizer(self) -> torch.optim.Optimizer:
        """Ours, out of what Accelerate has made of it."""
        return cast("torch.optim.Optimizer", self.trainer.optimizer.optimizer)  # type: ignore[union-attr]

    def _scaler(self) -> torch.amp.GradScaler | None:
        return cast("torch.amp.GradScaler | None", self.trainer.accelerator.scaler)
