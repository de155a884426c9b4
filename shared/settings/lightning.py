"""Which model train_lightning trains: one of this library, or a LightningModule of the user's."""

from __future__ import annotations

from typing import ClassVar

from shared.settings.fields import input_port, settings_class
from shared.settings.network import NetworkSettings


@settings_class
class ModuleSettings(NetworkSettings):
    """A model for images and tables, or a LightningModule in its place."""

    ORDER: ClassVar = ("architecture", "module", "module_arguments", "model_code")

    module: str | None = input_port(
        'FILE.py:CLASS in the folder "model_code": a LightningModule of yours, trained in place of "architecture". It '
        "defines training_step and configure_optimizers, so that optimizer, learning_rate, momentum, weight_decay, "
        "label_smoothing, warmup_fraction and schedule have no effect on it; nor has clip_norm if it makes its "
        "optimizer steps itself. And it defines forward, which is what the saved model does. Batches are (rows, y): "
        "standardised rows, images channels-first, and classes as whole numbers or the targets. What it logs as "
        "val_NAME is reported as validation_NAME.",
        default=None,
        is_identity=True,
    )
    module_arguments: str | None = input_port(
        'JSON object with the arguments of the class, such as {"hidden": 64}. Parameters called input_shape and '
        "num_outputs get the shape of a row and the number of classes, if they are not in it.",
        default=None,
        is_identity=True,
    )
