"""What train_deepspeed is told: what ZeRO divides and moves, and DeepSpeed's own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from shared.settings.augmentation import AugmentationSettings
from shared.settings.fields import input_port, settings_class
from shared.settings.network import DecoderSizes, NetworkSettings
from shared.settings.running import SavingSettings
from shared.settings.trainer import TrainerSettings


@settings_class
class ZeroSettings:
    """What DeepSpeed divides among the ranks, and how it is told."""

    zero_stage: int = input_port(
        "What lies in shards over the GPUs: 1 the optimizer's states, 2 also the gradients, 3 also the parameters, 0 "
        "nothing. Each needs less memory than the one before; 3 also more communication. The model does not depend on "
        "it.",
        default=2,
        least=0,
        most=3,
    )
    offload: Literal["none", "optimizer", "all"] = input_port(
        "What moves from the GPU to the memory of its node: the optimizer's states with their computation (stage 1, 2 "
        "and 3), or all, the parameters too (stage 3).",
        default="none",
    )
    config: Path | None = input_port(
        "DeepSpeed's own configuration, a JSON file. What it says wins over the inputs here; what it leaves out or "
        'sets to "auto" comes from them. Batch sizes have to agree. A key that DeepSpeed does not know is an error.',
        default=None,
        kind="uri_file",
    )
    on_unsupported: Literal["fail", "replace"] = input_port(
        "What to do about settings that this machine cannot follow, such as fp16 without a GPU or an optimizer that "
        "cannot be compiled. Fail names them; replace takes what comes nearest, with a warning in the log.",
        default="fail",
    )


@settings_class
class DeepSpeedSettings(TrainerSettings):
    """The groups of train_deepspeed, whose own Settings say how a common one differs."""

    network: NetworkSettings
    augmentation: AugmentationSettings
    decoder: DecoderSizes
    zero: ZeroSettings
    saving: SavingSettings
