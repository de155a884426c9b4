"""What the trainers with TensorFlow can be told: the common inputs, without what is torch's alone."""

from __future__ import annotations

from shared.settings.fields import change, changed_group, settings_class
from shared.settings.network import NetworkSettings
from shared.settings.running import LoaderSettings
from shared.settings.trainer import RowsTrainerSettings
from shared.settings.training import PrecisionSettings

KERAS_NETWORK = (
    "The network, in Keras: mlp; resnet, a small one for images; resnet50 for images of 32 x 32 and more; or "
    'FILE.py:FUNCTION in the folder "model_code". Tables take mlp. The function takes (input_shape, num_outputs), '
    "channels last, and returns a keras.Model."
)
# fp16 would need its loss scaled, and bf16 does not: TensorFlow's devices for which it matters have bf16.
KERAS_PRECISION = change(
    "Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp64 is for exact "
    "comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.",
    choices=("fp32", "bf16", "fp64"),
)


@settings_class
class KerasTrainerSettings(RowsTrainerSettings):
    """The inputs and outputs of a trainer with TensorFlow."""

    network: NetworkSettings = changed_group(
        without=["initial_weights", "normalization"],  # those of keras.applications have names and files of their own
        architecture=change(
            KERAS_NETWORK + " A BatchNormalization in it (resnet50 has some) takes the statistics of its GPU's own "
            "rows (batch_size / GPUs / accumulation_steps), so that other numbers of GPUs end with other weights; "
            "those of rank 0 are validated and saved."
        ),
    )
    precision: PrecisionSettings = changed_group(
        without=["gradient_checkpointing", "sync_batch_norm"],
        precision=KERAS_PRECISION,
        compile=change(
            "Compile the forward and backward pass with XLA; some time at the start, faster steps afterwards."
        ),
    )
    loader: LoaderSettings = changed_group(
        without=["pin_memory"],
        loader_workers=change("Threads of each process that read batches ahead; 0 reads between two steps."),
    )
