"""train_transformers' counterpart: transformers' own Trainer around the same model, told no more than it has to be."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from loops.hand_parts import held_rows
from loops.step_clock import StepClock
from torch.utils.data import Dataset as TorchDataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from shared.data import Dataset
from shared.distributed import World
from shared.training.transformers.start import make_base_model


class HeldTokens(TorchDataset[dict[str, torch.Tensor]]):
    """Rows of tokens in memory, taken a batch at a time, which a DataLoader asks for where it can."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return self.__getitems__([row])

    def __getitems__(self, rows: list[int]) -> dict[str, torch.Tensor]:
        """A batch; transformers moves the labels by one itself."""
        taken = self._tokens[rows].long()
        return {"input_ids": taken, "labels": taken}


def as_it_is(batch: Any) -> Any:
    """A batch is one already."""
    return batch


class ClockCallback(TrainerCallback):
    """Tells the clock of each step."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Count it."""
        self._clock.end_step()


def train_by_hand(settings: Any, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch; `settings` are those of train_transformers."""
    (tokens,) = held_rows(data)
    net = make_base_model(settings.base, settings.precision, settings.seed, data)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=settings.batch.batch_size // world.world_size,
            learning_rate=settings.optimizer.learning_rate,
            weight_decay=settings.optimizer.suited_decay,
            max_grad_norm=settings.optimizer.clip_norm,
            lr_scheduler_type="cosine",
            optim="adamw_torch_fused",
            logging_steps=settings.reports.log_every,
            save_strategy="no",
            report_to=[],
            remove_unused_columns=False,
            disable_tqdm=True,
            use_cpu=world.device.type == "cpu",
            bf16=settings.precision.precision == "bf16",
            ddp_backend="nccl" if world.device.type == "cuda" else "gloo",
            ddp_find_unused_parameters=False,
        )
        trainer = Trainer(
            net,
            arguments,
            train_dataset=HeldTokens(tokens[:, :-1]),
            data_collator=as_it_is,
            callbacks=[ClockCallback(clock)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
