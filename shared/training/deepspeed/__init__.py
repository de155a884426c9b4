"""What train_deepspeed needs besides what all trainers share: its configuration file, engine, checkpoints, tuning.

This module, `arguments`, `file` and `batches` need neither torch nor DeepSpeed: what they refuse is refused before
these are imported.
"""

from shared.training.deepspeed.arguments import add_deepspeed_arguments
from shared.training.deepspeed.batches import plan_batches
from shared.training.deepspeed.file import File, read_file

__all__ = ["File", "add_deepspeed_arguments", "plan_batches", "read_file"]
