"""How a model is trained: how long, on which batches, with which optimizer and arithmetic."""

from __future__ import annotations

from typing import Literal

from shared.settings.fields import Idle, input_port, settings_class

LARGEST_BETA = 0.99999
"""Of momentum and betas: from 1 on, an average would never forget, and the optimizers refuse it."""

LARGEST_SEED = 2**32 - 1
"""That NumPy, and so Keras and transformers, take."""


@settings_class
class LoopSettings:
    """How long."""

    epochs: int = input_port("Passes over the training rows.", default=15, least=1)
    max_steps: int = input_port(
        "End after so many steps, though the epochs are not over; the learning rate falls over these. 0 does not. A "
        "run that goes on from its checkpoints with more steps makes the rest of the epoch that was cut short, in the "
        "same order.",
        default=0,
        least=0,
        unit="steps",
    )


@settings_class
class BatchSettings:
    """The global batch, and in how many parts a rank computes its share."""

    batch_size: int = input_port(
        "Rows in one optimizer step, over all GPUs together. Must be a multiple of GPUs x accumulation_steps; the last "
        "partial batch of an epoch is left out.",
        default=64,
        least=1,
        unit="rows",
        is_identity=True,
    )
    accumulation_steps: int = input_port(
        "Parts in which each GPU computes its share of a batch, one after the other, to use less memory.",
        default=1,
        least=1,
    )


@settings_class
class OptimizerSettings:
    """The optimizer and what it is told."""

    optimizer: Literal["sgd", "adam", "adamw"] = input_port("Optimization method.", default="adamw", is_identity=True)
    learning_rate: float = input_port("Highest learning rate, reached after the warm-up.", default=0.006, least=0)
    momentum: float = input_port(
        "Momentum of sgd, and the first beta of adam and adamw.", default=0.9, least=0, most=LARGEST_BETA
    )
    beta2: float = input_port("Second beta of adam and adamw.", default=0.999, least=0, most=LARGEST_BETA)
    weight_decay: float | None = input_port(
        "Weight decay of matrices and convolutions; biases and normalisation weights are left out. Leave it empty for "
        "a value that suits the optimizer: 0.3 for adamw, 0.0005 for sgd, 0 for adam.",
        default=None,
        least=0,
    )
    label_smoothing: float = input_port(
        "Share of each label that is spread over all classes while training; keeps the model from being too sure, and "
        "usually better on new data. 0 turns it off; regression has no use for it.",
        default=0.1,
        least=0,
        most=1,
    )
    clip_norm: float = input_port(
        "Largest norm of the gradient over all parameters; 0 turns clipping off.", default=1.0, least=0
    )

    @property
    def suited_decay(self) -> float:
        """The weight decay; for sgd and adam it is a penalty that the loss would drown in if it were adamw's."""
        suited = {"sgd": 0.0005, "adam": 0.0, "adamw": 0.3}
        return suited[self.optimizer] if self.weight_decay is None else self.weight_decay


@settings_class
class ScheduleSettings:
    """The learning rate over the training."""

    warmup_fraction: float = input_port(
        "Part of all steps during which the learning rate rises from 0, as a fraction.", default=0.05, least=0, most=1
    )
    schedule: Literal["constant", "cosine", "linear"] = input_port(
        "What the learning rate does after the warm-up. Cosine and linear fall to 0 at the end.", default="cosine"
    )


@settings_class
class PrecisionSettings:
    """The arithmetic, and what is traded for memory and speed."""

    precision: Literal["fp32", "bf16", "fp16", "fp64"] = input_port(
        "Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales the loss and "
        "needs a GPU; fp64 is for exact comparisons.",
        default="fp32",
        is_identity=True,
    )
    gradient_checkpointing: bool = input_port(
        "Compute activations again in the backward pass instead of keeping them; less memory, about a third more time.",
        default=False,
    )
    compile: bool = input_port(
        "Compile the model with torch.compile; a minute at the start, faster steps afterwards.", default=False
    )
    deterministic: bool = input_port(
        "Use only operations of the GPU that repeat their bits, so that the same job, and one that was killed and "
        "continued, ends with exactly the same weights on GPUs of the same model. Convolutions become slower, since "
        "cuDNN may not try which of its algorithms is the fastest, and an operation without such a form ends the run "
        "and is named. Without it, runs on GPUs differ in the last digits. On a CPU it has no effect: there the bits "
        "are the same in any case.",
        default=False,
    )
    sync_batch_norm: bool = input_port(
        "Let batch normalization (of resnet18, resnet34, resnet50 and your own model) take its statistics over the "
        "rows of all GPUs, so that the result does not depend on how many there are; each such layer then waits for "
        "all GPUs. Without it, each GPU takes those of its own rows (batch_size / GPUs / accumulation_steps), so that "
        "other numbers of GPUs end with other weights, and the statistics of rank 0 are validated and saved.",
        default=False,
        idle=(
            Idle("a language model has none", lambda now: now.is_text),
            Idle("one rank has all rows of a batch", lambda now: not now.is_text and now.world_size == 1),
        ),
    )
