"""A training of Hugging Face's Trainer over DeepSpeed: checkpoints in the parts that ZeRO has made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from transformers import PreTrainedModel

from shared.checkpoint.choose import check_same_settings, choose_sharded_checkpoint
from shared.checkpoint.shards import ShardPart, ShardReader
from shared.training.core.position import TrainingPosition
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.deepspeed.saving import fragment_parts
from shared.training.deepspeed.state import TrainingSaver as EngineSaver
from shared.training.transformers.saving import kept_tensors, whole_part
from shared.training.transformers.state import TrainingSaver

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


class ZeroSaver(TrainingSaver):
    """Saves and restores one training whose optimizer DeepSpeed has."""

    def restore(self) -> TrainingPosition:
        """Read the position of the newest checkpoint of our folder, else of `resume_from`, or that of the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = choose_sharded_checkpoint(self.world, self.plan.folder, self.plan.resume_from)
        if path is None:
            return TrainingPosition()
        saved = ShardReader(path).state
        check_same_settings(saved, self.plan.identity, path)
        self._loaded = saved
        return TrainingPosition(**saved["position"])

    def load(self) -> None:
        """Read this rank's parts of the checkpoint, if there is one, now that DeepSpeed has its engine."""
        if self._loaded is not None:
            self._parts().restore()

    def parts(self) -> Iterator[ShardPart]:
        """Give this rank's fragments of the weights, in the optimizer's precision, and what does not train."""
        net = cast("PreTrainedModel", self.trainer.model)
        yield from fragment_parts(self._engine())
        yield from (whole_part(name, tensor) for name, tensor in kept_tensors(net) if not tensor.requires_grad)

    def _write(self, position: TrainingPosition) -> None:
        self._parts().save(position)

    def _engine(self) -> DeepSpeedEngine:
        return cast("DeepSpeedEngine", self.trainer.model_wrapped)

    def _parts(self) -> EngineSaver:
        parts = EngineSaver(self.plan, self.world, self._engine())
        parts.identity = self.plan.identity  # its `sharding` says what divides the model
        return parts
