"""What is compared: which trainer of ours, with what stands against it, on which model and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loops.rows import write_pictures, write_tokens
from loops.start_ranks import Launcher, gpus


@dataclass(frozen=True)
class LoopCase:
    """One comparison.

    Attributes:
        trainer: the component.
        counterpart: module of this package with `function`, which trains by hand.
        settings: arguments of the component that are not its defaults.
        rows: of one batch, of all ranks; where steps run side by side, of one step.
        shape: of a picture, or the length of a sequence.
        steps: that are measured, after `warm_up`: a multiple of 10.
    """

    trainer: str
    counterpart: str
    rows: int
    shape: tuple[int, ...]
    steps: int
    settings: Mapping[str, object] = field(default_factory=dict)
    function: str = "train_by_hand"
    warm_up: int = 10

    @property
    def framework(self) -> str:
        """That the world is made with."""
        return _WORLDS.get(self.trainer, ("torch", None))[0]

    @property
    def backend(self) -> str | None:
        """The framework's, of the world."""
        return _WORLDS.get(self.trainer, ("torch", None))[1]

    @property
    def launcher(self) -> Launcher:
        """Who starts the ranks."""
        if self.backend == "parameter_server":
            return "parameter server"
        if self.framework == "tensorflow":
            return "tensorflow"
        return "mpirun" if self.framework == "horovod" else "torch"

    @property
    def arguments(self) -> dict[str, object]:
        """Arguments of the component, without its folders: one epoch, and no checkpoint before its end."""
        never = {"checkpoint_every": 1_000_000_000, "checkpoint_minutes": 0}
        return {"batch_size": self.rows, "epochs": 1, **never, **self.settings}

    def write_data(self, folder: Path) -> None:
        """Write a dataset of one epoch, whose last step is not measured: it reports the epoch too."""
        count = self.rows * (self.warm_up + self.steps + 1)
        if len(self.shape) == 1:
            write_tokens(folder, count, self.shape[0])
        else:
            write_pictures(folder, count, self.shape)


_WORLDS: Mapping[str, tuple[str, str | None]] = {
    "train_deepspeed": ("deepspeed", None),
    "train_horovod": ("horovod", None),
    "train_horovod_keras": ("horovod", "tensorflow"),
    "train_tf_multiworker": ("tensorflow", None),
    "train_tf_parameter_server": ("tensorflow", "parameter_server"),
}
"""Framework and backend of the trainers that do without torch's own group."""

_SMALL_DECODER = {"layers": 2, "width": 64, "heads": 2}
_LARGER_DECODER = {"layers": 4, "width": 256, "heads": 4}
_SMALL, _LARGER = (8, 8, 1), (28, 28, 1)
_RESNET_SMALL = {"architecture": "resnet"}

_ON_CPUS: Mapping[str, LoopCase] = {
    "train_ddp, mlp, 64 rows": LoopCase("train_ddp", "ddp", 64, _SMALL, 150),
    "train_ddp, mlp, 1,024 rows": LoopCase("train_ddp", "ddp", 1024, _LARGER, 100),
    "train_ddp, resnet, 32 rows": LoopCase("train_ddp", "ddp", 32, _LARGER, 50, _RESNET_SMALL),
    "train_fsdp, decoder of 0.1 million, 8 x 32 tokens": LoopCase("train_fsdp", "fsdp", 8, (32,), 100, _SMALL_DECODER),
    "train_fsdp, decoder of 3 million, 8 x 128 tokens": LoopCase("train_fsdp", "fsdp", 8, (128,), 50, _LARGER_DECODER),
    "train_lightning, mlp, 64 rows": LoopCase("train_lightning", "lightning_fit", 64, _SMALL, 100),
    "train_lightning, mlp, 64 rows, nothing reported by hand": LoopCase(
        "train_lightning", "lightning_fit", 64, _SMALL, 100, function="train_bare"
    ),
    "train_lightning, mlp, 1,024 rows": LoopCase("train_lightning", "lightning_fit", 1024, _LARGER, 100),
    "train_transformers, Llama of 0.9 million, 8 x 32 tokens": LoopCase(
        "train_transformers", "transformers_fit", 8, (32,), 50
    ),
    "train_transformers, Llama of 0.9 million, 16 x 128 tokens": LoopCase(
        "train_transformers", "transformers_fit", 16, (128,), 30
    ),
    "train_horovod, mlp, 64 rows": LoopCase("train_horovod", "horovod_loop", 64, _SMALL, 700),
    "train_horovod, mlp, 1,024 rows": LoopCase("train_horovod", "horovod_loop", 1024, _LARGER, 200),
    "train_horovod_keras, mlp, 64 rows": LoopCase("train_horovod_keras", "horovod_keras", 64, _SMALL, 700),
    "train_horovod_keras, mlp, 1,024 rows": LoopCase("train_horovod_keras", "horovod_keras", 1024, _LARGER, 200),
    "train_horovod_keras, resnet, 32 rows": LoopCase(
        "train_horovod_keras", "horovod_keras", 32, _LARGER, 50, _RESNET_SMALL
    ),
    "train_deepspeed, mlp, 64 rows": LoopCase("train_deepspeed", "deepspeed_loop", 64, _SMALL, 150),
    "train_deepspeed, mlp, 1,024 rows": LoopCase("train_deepspeed", "deepspeed_loop", 1024, _LARGER, 200),
    "train_tf_multiworker, mlp, 64 rows": LoopCase("train_tf_multiworker", "tf_multiworker", 64, _SMALL, 500),
    "train_tf_multiworker, mlp, 1,024 rows": LoopCase("train_tf_multiworker", "tf_multiworker", 1024, _LARGER, 200),
    "train_tf_parameter_server, mlp, 64 rows": LoopCase(
        "train_tf_parameter_server", "tf_parameter_server", 64, _SMALL, 300
    ),
    "train_tf_parameter_server, mlp, 1,024 rows": LoopCase(
        "train_tf_parameter_server", "tf_parameter_server", 1024, _LARGER, 200
    ),
}

_RESNET = {"architecture": "resnet50", "precision": "bf16"}
_DECODER = {"layers": 12, "width": 768, "heads": 12, "precision": "bf16"}
_PICTURE = (224, 224, 3)

_ON_GPUS: Mapping[str, LoopCase] = {
    "train_ddp, mlp, 1,024 rows": LoopCase("train_ddp", "ddp", 1024, _LARGER, 200),
    "train_ddp, resnet50, 128 rows, bf16": LoopCase("train_ddp", "ddp", 128, _PICTURE, 30, _RESNET),
    "train_fsdp, decoder of 85 million, 16 x 1,024 tokens, bf16": LoopCase(
        "train_fsdp", "fsdp", 16, (1024,), 30, _DECODER
    ),
    "train_lightning, resnet50, 128 rows, bf16": LoopCase(
        "train_lightning", "lightning_fit", 128, _PICTURE, 30, _RESNET
    ),
    "train_transformers, Llama of 0.9 million, 64 x 512 tokens, bf16": LoopCase(
        "train_transformers", "transformers_fit", 64, (512,), 30, {"precision": "bf16"}
    ),
}
"""Without Horovod, whose build for GPUs its image has."""

CASES = _ON_GPUS if gpus() else _ON_CPUS
