"""How a model is trained: how long, on which batches, with which optimizer and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from shared.settings.fields import Idle, Input

LARGEST_BETA = 0.99999
"""Of momentum and betas: from 1 on, an average would never forget, and the optimizers refuse it."""

LARGEST_SEED = 2**32 - 1
"""That NumPy, and so Keras and transformers, take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How long."""

    epochs: Annotated[int, Input("Passes over the training rows.", least=1)] = 15
    max_steps: Annotated[
        int,
        Input(
            "End after so many steps, though the epochs are not over; the learning rate falls over these. 0 does not. "
            "A run that goes on from its checkpoints with more steps makes the rest of the epoch that was cut short, "
            "in the same order.",
            least=0,
            unit="steps",
        ),
    ] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """The global batch, and in how many parts a rank computes its share."""

    batch_size: Annotated[
        int,
        Input(
            "Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x accumulation_steps; the "
            "last partial batch of an epoch is left out.",
            least=1,
            unit="rows",
            is_identity=True,
        ),
    ] = 64
    accumulation_steps: Annotated[
        int,
        Input(
            "Parts in which each GPU computes its share of a batch, one after the other, to use less memory.", least=1
        ),
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """The optimizer and what it is told."""

    optimizer: Annotated[Literal["sgd", "adam", "adamw"], Input("Optimization method.", is_identity=True)] = "adamw"
    learning_rate: Annotated[float, Input("Highest learning rate, reached after the warm-up.", least=0)] = 0.006
    momentum: Annotated[
        float, Input("Momentum of sgd, and the first beta of adam and adamw.", least=0, most=LARGEST_BETA)
    ] = 0.9
    beta2: Annotated[float, Input("Second beta of adam and adamw.", least=0, most=LARGEST_BETA)] = 0.999
    weight_decay: Annotated[
        float | None,
        Input(
            "Weight decay of matrices and convolutions; biases and normalisation weights are left out. Leave it empty "
            "for a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.",
            least=0,
        ),
    ] = None
    label_smoothing: Annotated[
        float,
        Input(
            "Share of each label that is spread over all classes while training; keeps the model from being too sure, "
            "and usually better on new data. 0 turns it off; regression has no use for it.",
            least=0,
            most=1,
        ),
    ] = 0.1
    clip_norm: Annotated[
        float, Input("Largest norm of the gradient over all parameters; 0 turns clipping off.", least=0)
    ] = 1.0

    @property
    def suited_decay(self) -> float:
        """The weight decay; for sgd and adam it is a penalty that the loss would drown in if it were adamw's."""
        suited = {"sgd": 0.0005, "adam": 0.0, "adamw": 0.3}
        return suited[self.optimizer] if self.weight_decay is None else self.weight_decay


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The learning rate over the training."""

    warmup_fraction: Annotated[
        float,
        Input("Part of all steps during which the learning rate rises from 0, as a fraction.", least=0, most=1),
    ] = 0.05
    schedule: Annotated[
        Literal["constant", "cosine", "linear"],
        Input("What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end."),
    ] = "cosine"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSettings:
    """The arithmetic, and what is traded for memory and speed."""

    precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp64"],
        Input(
            "Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales the loss "
            "and needs a GPU; fp64 is for exact comparisons.",
            is_identity=True,
        ),
    ] = "fp32"
    gradient_checkpointing: Annotated[
        bool,
        Input(
            "Compute activations again in the backward pass instead of keeping them; less memory, about a third more "
            "time."
        ),
    ] = False
    compile: Annotated[
        bool, Input("Compile the model with torch.compile; a minute at the start, faster steps afterwards.")
    ] = False
    sync_batch_norm: Annotated[
        bool,
        Input(
            "Let batch normalization of your own model take its statistics over the rows of all GPUs, so that the "
            "result does not depend on how many there are; each such layer then waits for all GPUs. Without it, each "
            "GPU takes those of its own rows (batch_size / GPUs / accumulation_steps), so that other numbers of GPUs "
            "end with other weights, and the statistics of rank 0 are validated and saved. The models of this library "
            "have no batch normalization.",
            idle=(
                Idle("a language model has none", lambda now: now.is_text),
                Idle("one rank has all rows of a batch", lambda now: not now.is_text and now.world_size == 1),
            ),
        ),
    ] = False
