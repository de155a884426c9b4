"""Exact loss and metrics over all ranks: each row counts once, whatever the number of ranks."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from shared.data import Dataset
from shared.distributed import World
from shared.settings.running import LoaderSettings, TimeoutSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.batch_norm import share_statistics
from shared.training.torch.feed import RowReader
from shared.training.torch.objective import objective_of
from shared.training.torch.optimization import TrainingPrecision
