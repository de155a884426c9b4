"""What the trainers with TensorFlow can be told: the common inputs, without what is torch's alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shared.settings.fields import change, without
from shared.settings.network import NetworkSettings
from shared.settings.running import LoaderSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import LoopSettings, OptimizerSettings, PrecisionSettings

KERAS_NETWORK = (
    'The network, in Keras: mlp, resnet, vit, or FILE.py:FUNCTION in the folder "model_code". Tables take mlp, since '
    "resnet and vit are for images. The function takes (input_shape, num_outputs), channels last, and returns a "
    "keras.Model."
)
# fp16 would need its loss scaled, and bf16 does not: TensorFlow's devices for which it matters have bf16.
KERAS_PRECISION = change(
    "precision",
    "Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp64 is for exact "
    "comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.",
    choices=("fp32", "bf16", "fp64"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasTrainerSettings(TrainerSettings):
    """The inputs and outputs of a trainer with TensorFlow."""

    network: Annotated[
        NetworkSettings,
        change(
            "architecture",
            KERAS_NETWORK + " A BatchNormalization in it takes the statistics of its GPU's own rows (batch_size / GPUs "
            "/ accumulation_steps), so that other numbers of GPUs end with other weights; those of rank 0 are "
            "validated and saved.",
        ),
    ]
    loop: Annotated[LoopSettings, without("max_steps")]
    optimizer: Annotated[OptimizerSettings, without("beta2")]
    precision: Annotated[
        PrecisionSettings,
        without("gradient_checkpointing", "sync_batch_norm"),
        KERAS_PRECISION,
        change(
            "compile",
            "Compile the forward and backward pass with XLA; some time at the start, faster steps afterwards.",
        ),
    ]
    loader: Annotated[
        LoaderSettings,
        without("pin_memory"),
        change("loader_workers", "Threads of each process that read batches ahead; 0 reads between two steps."),
    ]
