"""A training of Hugging Face's Trainer over DeepSpeed: checkpoints in the parts that ZeRO has made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, cast

from transformers import PreTrainedModel, Trainer

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import World
from shared.training.core.position import CheckpointPlan
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.deepspeed.saving import fragment_parts
from shared.training.deepspeed.state import TrainingSaver as EngineSaver
from shared.training.torch.state import PartsSaver
from shared.training.transformers.saving import kept_tensors

ZERO_CONFIGURATION: Final[Mapping[str, object]] = {
    "zero_optimization": {"stage": 2, "overlap_comm": False},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_allow_untested_optimizer": True,
}
"""What the Trainer fills in: gradients and the optimizer's states in parts; train_deepspeed does all that there is."""


class ZeroSaver(EngineSaver):
    """Saves and restores one training whose optimizer DeepSpeed has.

    All bytes of a checkpoint are read, by the ranks together, before it is chosen: when it is loaded it is too late to
    choose another one. The Trainer is to be set as `trainer` before the first step.
    """

    trainer: Trainer

    def __init__(self, plan: CheckpointPlan, world: World) -> None:
        PartsSaver.__init__(self, replace(plan, verify=True), world)
        self.identity = plan.identity  # its `sharding` says what divides the model
        self._saved: CheckpointReader | None = None

    def _load(self, saved: CheckpointReader) -> None:
        """Keep the checkpoint until `load`: DeepSpeed has no engine yet that could take it."""
        self._saved = saved

    def load(self) -> None:
        """Read this rank's parts of the checkpoint, if there is one, now that DeepSpeed has its engine.

        Raises:
            DamageError: if a piece of it is not what was written.
        """
        self.engine = cast("DeepSpeedEngine", self.trainer.model_wrapped)
        if self._saved is not None:
            super()._load(self._saved)
            self._saved = None

    def parts(self) -> Iterator[ShardPart]:
        """Give this rank's fragments of the weights, in the optimizer's precision, and what does not train."""
        net = cast("PreTrainedModel", self.trainer.model)
        yield from fragment_parts(self.engine)
        yield from (ShardPart.whole(name, tensor) for name, tensor in kept_tensors(net) if not tensor.requires_grad)
