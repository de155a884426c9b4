"""All that a training with DeepSpeed needs to go on as if it had never stopped, in any stage and on any ranks.

DeepSpeed's own checkpoints are pickles, and bound to a stage and a number of ranks. Here each rank writes its fragments
of the optimizer's parameters and states, as safetensors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch

from shared.checkpoint.shards import Part, Reader
from shared.data import Dataset
from shared.distributed import World
from shared.training.core.position import Position
from shared.training.deepspeed.engine import Engine
from shared.training.deepspeed.fragments import fragments_of, spread, states_of
from shared.training.torch.batch_norm import share_statistics
from shared.training.torch.parts import PartsSaver


class Saver(PartsSaver):
    """Saves and restores one training.

    What does not train is not kept: it follows from the seed and the model's code. Nor are buffers of ranks above 0.

    Args:
        args: the trainer's; its `checkpoints` is the folder, which all nodes have to share.
        data: the dataset, whose shape has to be the same when the training goes on.
        world: whose ranks each write and read their parts.
        engine: the model and its optimizer, whose settings come from the arguments.
    """

    division = "DeepSpeed"

    def __init__(self, args: argparse.Namespace, data: Dataset, world: World, engine: Engine) -> None:
        super().__init__(args, data, world)
        self.engine = engine

    def save(self, position: Position) -> None:
        """Write a checkpoint, with rank 0's statistics, which all ranks have from then on; every rank calls this."""
        share_statistics(self.engine.module, self.world)
        super().save(position)

    def _parts(self) -> Iterator[Part]:
        """What this rank answers for: its fragments, or without ZeRO, where all have the same, rank 0 everything."""
        if self.engine.zero_optimization_stage() > 0 or self.world.is_main:
            states = states_of(self.engine)
            for fragment in fragments_of(self.engine):
                kept = {key: value for key, value in states[fragment.flat].items() if _follows(value, fragment.flat)}
                for kind, values in {"model": fragment.flat, **kept}.items():
                    place = (fragment.numel,), (fragment.start,)
                    yield Part(f"{kind}.{fragment.name}", fragment.of(values).clone(), *place)
        if self.world.is_main:
            for name, buffer in self.engine.module.named_buffers():
                yield Part(f"buffer.{name}", buffer, tuple(buffer.shape), (0,) * buffer.ndim)

    def _read(self, saved: Reader) -> None:
        """Fill this rank's fragments, the states, which the optimizer would make at its first step, and the rest."""
        states, counters = states_of(self.engine), saved.state["counters"]
        kinds = {key.partition(".")[0] for key in saved.shapes} - {"model", "buffer"}
        for fragment in fragments_of(self.engine):
            entries = states[fragment.flat]
            entries.update({kind: torch.zeros_like(fragment.flat) for kind in kinds if kind not in entries})
            entries.update({name: _counter(number, fragment.flat) for name, number in counters.items()})
            for kind, values in {"model": fragment.flat, **{kind: entries[kind] for kind in kinds}}.items():
                saved.read(f"{kind}.{fragment.name}", fragment.of(values), (fragment.start,))
        spread(self.engine)
        for name, buffer in self.engine.module.named_buffers():
            saved.read(f"buffer.{name}", buffer, (0,) * buffer.ndim)
        vars(self._scaler()).update(saved.state["scaler"])

    def _counters(self) -> dict[str, Any]:
        """What the optimizer keeps besides tensors of the parameters' size: its steps, as torch or Python has them."""
        entries: dict[str, Any] = next(iter(states_of(self.engine).values()), {})
        sizes = {value.numel() for value in entries.values() if isinstance(value, torch.Tensor)}
        counters = {}
        for name, value in entries.items():
            if not isinstance(value, torch.Tensor):
                counters[name] = {"python": value}
            elif value.numel() == 1 and len(sizes) > 1:
                counters[name] = {"torch": value.item()}
        return counters

    def _scaler(self) -> Any:
        optimizer = self.engine.optimizer
        return getattr(optimizer, "loss_scaler", None) or getattr(optimizer, "loss_scale_config", argparse.Namespace())

    def _weights(self) -> Iterator[torch.Tensor]:
        return (fragment.of(fragment.flat) for fragment in fragments_of(self.engine))

    def _numbers(self) -> dict[str, Any]:
        return {"counters": self._counters(), "scaler": _numbers(self._scaler())}


def _follows(value: Any, flat: torch.Tensor) -> bool:
    """Whether an entry of the optimizer's state has an element for each of the parameters'."""
    return isinstance(value, torch.Tensor) and value.shape == flat.shape and value.ndim > 0


def _counter(number: dict[str, Any], flat: torch.Tensor) -> Any:
    return torch.tensor(number["torch"], device=flat.device) if "torch" in number else number["python"]


def _numbers(scaler: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(scaler).items() if isinstance(value, int | float)}
