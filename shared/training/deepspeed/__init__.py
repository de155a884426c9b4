"""What train_deepspeed needs besides what all trainers share: its configuration file, engine, checkpoints.

This module and `config_file` need neither torch nor DeepSpeed: what they refuse is refused before these
are imported.
"""

from shared.training.deepspeed.config_file import ConfigFile, plan_batches, read_config_file

__all__ = ["ConfigFile", "plan_batches", "read_config_file"]
