"""All that a training with DeepSpeed needs to go on as if it had never stopped, in any stage and on any ranks.

DeepSpeed's own checkpoints are pickles, and bound to a stage and a number of ranks. Here each rank writes its fragments
of the optimizer's parameters and states, as safetensors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from shared import checkpoint, sharded_checkpoint
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.sharded_checkpoint import Part
from shared.training.deepspeed.engine import Engine
from shared.training.deepspeed.fragments import fragments_of, spread, states_of
from shared.training.position import Position, settings_of
from shared.training.state import random_state, set_random_state


class Saver:
    """Saves and restores one training.

    What does not train is not kept: it follows from the seed and the model's code. Nor are buffers of ranks above 0.

    Args:
        args: the trainer's; its `checkpoints` is the folder, which all nodes have to share.
        data: the dataset, whose shape has to be the same when the training goes on.
        world: whose ranks each write and read their parts.
        engine: the model and its optimizer, whose settings come from the arguments.
    """

    def __init__(self, args: argparse.Namespace, data: Dataset, world: World, engine: Engine) -> None:
        self.folder = Path(args.checkpoints)
        self.settings = settings_of(args, data)
        self._timeout = timedelta(minutes=args.step_timeout)
        self.world, self.engine = world, engine

    def save(self, position: Position) -> None:
        """Write a checkpoint; every rank calls this at the same step.

        Raises:
            Refusal: if a weight is not finite: such a checkpoint would only hide the whole one before it.
        """
        self._check_finite(position)
        generators = self.world.gather(random_state(), f"random numbers at step {position.step}", self._timeout)
        state = {
            "position": asdict(position),
            "settings": self.settings,
            "counters": self._counters(),
            "scaler": _numbers(self._scaler()),
            "generators": generators,
            "world_size": self.world.world_size,
        }
        sharded_checkpoint.save(self.folder, position.step, self._parts(), state, self.world, self._timeout)

    def restore(self, resume_from: str | None) -> Position:
        """Go on from the newest checkpoint of our folder, else from that of `resume_from`, else from the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = sharded_checkpoint.choose(self.world, self.folder, resume_from)
        if path is None:
            return Position()
        saved = sharded_checkpoint.Reader(path)
        checkpoint.check_same(saved.state["settings"], self.settings, path)
        self._read(saved)
        vars(self._scaler()).update(saved.state["scaler"])
        if saved.state["world_size"] == self.world.world_size:  # other ranks start other, freshly seeded sequences
            set_random_state(saved.state["generators"][self.world.rank])
        position = Position(**saved.state["position"])
        self.world.note(f"continuing from {path}: step {position.step}, epoch {position.epoch + 1}")
        return position

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

    def _read(self, saved: sharded_checkpoint.Reader) -> None:
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

    def _check_finite(self, position: Position) -> None:
        sums = [fragment.of(fragment.flat).sum(dtype=torch.float64).cpu() for fragment in fragments_of(self.engine)]
        finite = not sums or bool(torch.isfinite(torch.stack(sums)).all())
        if self.world.any(not finite, f"not finite at step {position.step}", self._timeout):
            raise Refusal(
                f"The weights are not finite after step {position.step}. Lower learning_rate or set clip_norm; the "
                f"checkpoints in {self.folder} are from before."
            )


def _follows(value: Any, flat: torch.Tensor) -> bool:
    """Whether an entry of the optimizer's state has an element for each of the parameters'."""
    return isinstance(value, torch.Tensor) and value.shape == flat.shape and value.ndim > 0


def _counter(number: dict[str, Any], flat: torch.Tensor) -> Any:
    return torch.tensor(number["torch"], device=flat.device) if "torch" in number else number["python"]


def _numbers(scaler: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(scaler).items() if isinstance(value, int | float)}
