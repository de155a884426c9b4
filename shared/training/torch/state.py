"""All that a training needs to go on as if it had never stopped: gathered into a checkpoint, and put back."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import Refusal, World
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition, values_below
from shared.training.torch.batch_norm import share_statistics

_WORDS: Final = 2**16
"""Words of 64 bits that are added up at once: as many as a processor's cache holds."""


class TrainingSaver(CheckpointSaver):
    """Saves and restores one training: the model, not wrapped, and the states of the others; rank 0 writes."""

    def __init__(
        self,
        plan: CheckpointPlan,
        world: World,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
    ) -> None:
        super().__init__(plan, world)
        self.module, self.optimizer, self.scaler = module, optimizer, scaler

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; see `CheckpointSaver`."""
        if not has_finite_weights(self.module):
            raise self._not_finite(position)
        share_statistics(self.module, self.world)  # so that this run and one that goes on from here are alike
        tensors, state = self._content(position) if self.world.is_main else ({}, {})
        parts = (ShardPart.whole(name, tensor) for name, tensor in tensors.items())
        self.writer.save(position.step, parts, state, {"generators": random_state()})

    def weight_digests(self) -> list[tuple[str, str]]:
        """Give a digest of each weight; see `CheckpointSaver`."""
        return weight_digests(self.module)

    def _content(self, position: TrainingPosition) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Give what the ranks have in common: tensors, and everything else."""
        tensors = {f"model.{name}": tensor for name, tensor in self.module.state_dict().items()}
        others: dict[str, Any] = {}
        for number, entries in self.optimizer.state_dict()["state"].items():
            for name, value in entries.items():
                (tensors if isinstance(value, torch.Tensor) else others)[f"optimizer.{number}.{name}"] = value
        return tensors, self._state(position) | {"optimizer": others, "scaler": self.scaler.state_dict()}

    def _load(self, saved: CheckpointReader) -> None:
        path, state, tensors = saved.path, saved.state, saved.tensors()
        try:
            self.module.load_state_dict(values_below("model.", tensors))
        except RuntimeError as error:
            raise Refusal(f"The checkpoint {path} does not fit the model: {' '.join(str(error).split())}") from error
        entries: dict[int, dict[str, Any]] = {}
        for key, value in {
            **values_below("optimizer.", tensors),
            **values_below("optimizer.", state["optimizer"]),
        }.items():
            number, _, name = key.partition(".")
            entries.setdefault(int(number), {})[name] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": entries, "param_groups": groups})
        self.scaler.load_state_dict(state["scaler"])
        restore_random_state(saved, self.world)


def has_finite_weights(module: nn.Module) -> bool:
    """Whether each weight is a finite number; waits for the device once."""
    sums = torch.stack([parameter.detach().sum(dtype=torch.float64) for parameter in module.parameters()])
    return bool(torch.isfinite(sums.sum()))


def weight_digests(module: nn.Module) -> list[tuple[str, str]]:
    """Return name and digest of each parameter that trains and is the same on all ranks, computed on its device.

    A digest is of sums over pieces of the bits, each word of 64 bits times an odd number of its own: a single word that
    differs is always seen. Left out are buffers, such as statistics of batch normalization, parameters that do not
    train, and those that the module hides from DistributedDataParallel.
    """
    hidden = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
    factors = torch.randint(-(2**63), 2**63 - 1, (_WORDS,), generator=torch.Generator().manual_seed(0)) | 1
    digests = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and name not in hidden:
            factors, sums = factors.to(parameter.device), []
            for piece in parameter.detach().flatten().view(torch.uint8).split(8 * _WORDS):
                words = torch.cat([piece, piece.new_zeros(-len(piece) % 8)]).view(torch.int64)
                sums.append((words * factors[: len(words)]).sum())
            digests.append((name, hashlib.sha256(str(torch.stack(sums).tolist()).encode()).hexdigest()))
    return digests


def random_state() -> dict[str, Any]:
    """Take the state of this rank's random number generators, as JSON."""
    version, words, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return {
        "torch": _text(torch.get_rng_state()),
        "cuda": None if cuda is None else _text(cuda),
        "numpy": json.loads(json.dumps(numpy, default=lambda array: array.tolist())),
        "python": [version, list(words), gauss],
    }


def restore_random_state(saved: CheckpointReader, world: World) -> None:
    """Go on with this rank's random numbers where a checkpoint was written by as many ranks."""
    generators = read_rank_generators(saved, saved.state["world_size"], world)
    if generators is not None:
        set_random_state(generators)


def read_rank_generators(saved: CheckpointReader, written_by: int, world: World) -> Mapping[str, Any] | None:
    """Read the state of this rank's random number generators from its file in a checkpoint of so many ranks.

    None if that is another number of ranks: these start other, freshly seeded sequences.
    """
    if written_by != world.world_size:
        return None
    generators: Mapping[str, Any] = saved.own_state(world.rank)["generators"]
    return generators


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put this rank's random number generators into a state that ``random_state`` took."""
    torch.set_rng_state(_tensor(state["torch"]))
    if state["cuda"] is not None and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(_tensor(state["cuda"]))
    np.random.set_state(state["numpy"])  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


def _text(tensor: torch.Tensor) -> str:
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


class PartsSaver(CheckpointSaver):
    """Saves and restores one training, of which each rank writes and reads its parts in one folder for all nodes."""

    division: str
    """What divides the model; the parts of another one do not fit."""

    def __init__(self, plan: CheckpointPlan, world: World) -> None:
        super().__init__(plan, world)
        self.identity = plan.identity | {"division": self.division}

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; see `CheckpointSaver`."""
        sums = [weight.sum(dtype=torch.float64).cpu() for weight in self._weights()]
        finite = not sums or bool(torch.isfinite(torch.stack(sums)).all())
        if self.world.any(not finite, f"not finite at step {position.step}", self.plan.timeout):
            raise self._not_finite(position)
        state = self._state(position) | self._numbers()
        self.writer.save(position.step, self._parts(), state, {"generators": random_state()})

    def _load(self, saved: CheckpointReader) -> None:
        self._read(saved)
        restore_random_state(saved, self.world)

    @abstractmethod
    def _parts(self) -> Iterator[ShardPart]:
        """Give what this rank answers for."""

    @abstractmethod
    def _weights(self) -> Iterable[torch.Tensor]:
        """Give the weights of which this rank has a part: its part of each."""

    @abstractmethod
    def _read(self, saved: CheckpointReader) -> None:
        """Fill this rank's parts."""

    def _numbers(self) -> dict[str, Any]:
        """Give what is to be kept besides tensors, by name, as JSON."""
        return {}
