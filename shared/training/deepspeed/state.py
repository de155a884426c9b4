"""All that a training with DeepSpeed needs to go on as if it had never stopped, in any stage and on any ranks.

DeepSpeed's own checkpoints are pickles, and bound to a stage and a number of ranks. Here each rank writes its fragments
of the optimizer's parameters and states, as safetensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import TypeGuard, cast

import torch

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import World
from shared.training.core.position import CheckpointPlan, TrainingPosition
from shared.training.deepspeed.engine import optimizer_states
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.deepspeed.fragments import local_fragments, refresh_model_weights
from shared.training.torch.batch_norm import share_statistics
from shared.training.torch.state import PartsSaver, weight_digests


class TrainingSaver(PartsSaver):
    """Saves and restores one training.

    What does not train is not kept: it follows from the seed and the model's code. Nor are buffers of ranks above 0.
    """

    division = "DeepSpeed"

    def __init__(self, plan: CheckpointPlan, world: World, engine: DeepSpeedEngine) -> None:
        super().__init__(plan, world)
        self.engine = engine

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint, with rank 0's statistics, which all ranks have from then on; every rank calls this."""
        share_statistics(self.engine.module, self.world)
        super().save(position)

    def weight_digests(self) -> list[tuple[str, str]]:
        """Give a digest of each weight up to stage 2, where each rank has them whole; see `CheckpointSaver`."""
        return weight_digests(self.engine.module) if self.engine.zero_optimization_stage() < 3 else []

    def _parts(self) -> Iterator[ShardPart]:
        """What this rank answers for: its fragments, or without ZeRO, where all have the same, rank 0 everything."""
        if self.engine.zero_optimization_stage() > 0 or self.world.is_main:
            states = optimizer_states(self.engine)
            for fragment in local_fragments(self.engine):
                entries = states[fragment.flat].items()
                kept = {key: value for key, value in entries if _has_elements_of(value, fragment.flat)}
                for kind, values in {"model": fragment.flat, **kept}.items():
                    place = (fragment.numel,), (fragment.start,)
                    yield ShardPart(f"{kind}.{fragment.name}", fragment.view_of(values), *place)
        if self.world.is_main:
            for name, buffer in self.engine.module.named_buffers():
                yield ShardPart(f"buffer.{name}", buffer, tuple(buffer.shape), (0,) * buffer.ndim)

    def _read(self, saved: CheckpointReader) -> None:
        """Fill this rank's fragments, the states, which the optimizer would make at its first step, and the rest."""
        states = optimizer_states(self.engine)
        counters: Mapping[str, Mapping[str, float]] = saved.state["counters"]
        kinds = {key.partition(".")[0] for key in saved.shapes} - {"model", "buffer"}
        for fragment in local_fragments(self.engine):
            entries = states[fragment.flat]
            entries.update({kind: torch.zeros_like(fragment.flat) for kind in kinds if kind not in entries})
            entries.update({name: _counter(number, fragment.flat) for name, number in counters.items()})
            for kind in ("model", *kinds):
                values = fragment.flat if kind == "model" else cast("torch.Tensor", entries[kind])
                saved.read(f"{kind}.{fragment.name}", fragment.view_of(values), (fragment.start,))
        refresh_model_weights(self.engine)
        for name, buffer in self.engine.module.named_buffers():
            saved.read(f"buffer.{name}", buffer, (0,) * buffer.ndim)
        vars(self._scaler()).update(saved.state["scaler"])

    def _counters(self) -> dict[str, dict[str, object]]:
        """What the optimizer keeps besides tensors of the parameters' size: its steps, as torch or Python has them."""
        entries = next(iter(optimizer_states(self.engine).values()), {})
        sizes = {value.numel() for value in entries.values() if isinstance(value, torch.Tensor)}
        counters: dict[str, dict[str, object]] = {}
        for name, value in entries.items():
            if not isinstance(value, torch.Tensor):
                counters[name] = {"python": value}
            elif value.numel() == 1 and len(sizes) > 1:
                counters[name] = {"torch": value.item()}
        return counters

    def _scaler(self) -> object:
        optimizer = self.engine.optimizer
        return getattr(optimizer, "loss_scaler", None) or getattr(optimizer, "loss_scale_config", SimpleNamespace())

    def _weights(self) -> Iterator[torch.Tensor]:
        return (fragment.view_of(fragment.flat) for fragment in local_fragments(self.engine))

    def _numbers(self) -> dict[str, object]:
        scaler = {name: value for name, value in vars(self._scaler()).items() if isinstance(value, int | float)}
        return {"counters": self._counters(), "scaler": scaler}


def _has_elements_of(value: object, flat: torch.Tensor) -> TypeGuard[torch.Tensor]:
    """Whether an entry of the optimizer's state has an element for each of the parameters'."""
    return isinstance(value, torch.Tensor) and value.shape == flat.shape and value.ndim > 0


def _counter(number: Mapping[str, float], flat: torch.Tensor) -> object:
    return torch.tensor(number["torch"], device=flat.device) if "torch" in number else number["python"]
