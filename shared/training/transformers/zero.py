"""A training of Hugging Face's Trainer over DeepSpeed: checkpoints in the parts that ZeRO has made of it."""

from __future__ import annotations

from typing import Any

from shared.checkpoint.choose import check_same, choose
from shared.checkpoint.shards import Reader
from shared.training.core.position import Position
from shared.training.deepspeed import state
from shared.training.deepspeed.engine import whole_parameters
from shared.training.transformers.checkpoints import Saver

CONFIGURATION = {
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


class ZeroSaver(Saver):
    """Saves and restores one training whose optimizer DeepSpeed has."""

    _resume_from: str | None = None

    def restore(self, resume_from: str | None) -> Position:
        """Read the position of the newest checkpoint of our folder, else of `resume_from`, or that of the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = choose(self._world, self.folder, resume_from)
        if path is None:
            return Position()
        saved = Reader(path).state
        check_same(saved, self.settings, path)
        self._resume_from, self._loaded = resume_from, saved
        return Position(**saved["position"])

    def load(self) -> None:
        """Read this rank's parts of the checkpoint, if there is one, now that DeepSpeed has its engine."""
        if self._loaded is not None:
            self._parts().restore(self._resume_from)

    def weights(self) -> dict[str, Any]:
        """Put the weights together, in the optimizer's precision; every rank calls this."""
        assert self.trainer is not None  # noqa: S101
        return {name: whole.cpu() for name, whole in whole_parameters(self.trainer.model_wrapped)}

    def _write(self, position: Position) -> None:
        self._parts().save(position)

    def _parts(self) -> state.Saver:
        assert self.trainer is not None  # noqa: S101
        parts = state.Saver(self._args, self._data, self._world, self.trainer.model_wrapped)
        parts.settings = self.settings
        return parts
