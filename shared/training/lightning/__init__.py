"""What train_lightning needs besides `shared.training`: our bookkeeping and checkpoints as plugins of Lightning's."""

import logging

import lightning  # noqa: F401  # it sets the level of its loggers when it is imported

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # the run reports what there is to say
