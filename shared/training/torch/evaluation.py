"""Exact loss and metrics over all ranks: each row counts once, whatever the number of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from shared.data import Dataset
from shared.distributed import World
from shared.settings.running import LoaderSettings, TimeoutSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.stopping import StopAgreement
from shared.training.torch.batch_norm import share_statistics
from shared.training.torch.feed import RowReader
from shared.training.torch.objective import objective_of
from shared.training.torch.optimization import TrainingPrecision


@dataclass
class SplitEvaluation:
    """Measures a model on a split; on an empty split there is nothing to measure.

    Each rank takes every n-th row: a sampler that pads to equal parts would count some rows twice.
    """

    data: Dataset
    split: str
    world: World
    precision: TrainingPrecision
    plan: BatchPlan
    loader: LoaderSettings
    timeouts: TimeoutSettings

    def __post_init__(self) -> None:
        self._objective = objective_of(self.data.index, split=self.split)
        self._rows_per_pass = 4 * self.plan.rows_per_pass  # no activations are kept, so more fit than in training
        rows = self.data.index.rows(self.split)
        part, self._parts = self._share()
        self._reader = RowReader(self.data.split(self.split), self.world.device, self.loader) if rows else None
        self._mine = np.arange(part, rows, self._parts)

    def measure(self, module: nn.Module, stop: StopAgreement | None = None) -> dict[str, float] | None:
        """Compute mean loss and metrics of the unwrapped module, summed in float64; `TrainingObjective` names them.

        What is measured is the model that rank 0 saves. All ranks leave off, and give None, if one is asked to `stop`.
        """
        if self._reader is None:
            return {}
        share_statistics(module, self.world)
        sums = torch.zeros(self._objective.sums, dtype=torch.float64, device=self.world.device)
        module.eval()
        left_off = self._add_up(sums, module, self._reader, stop)
        module.train()
        *found, ranks_off = self.world.sum([*sums.tolist(), float(left_off)], "validation", self.timeouts.step)
        return None if ranks_off else self._objective.metrics(found, self._reader.split.rows)

    def _share(self) -> tuple[int, int]:
        """Which of how many equal parts of the rows is this rank's."""
        return self.world.rank, self.world.world_size

    def _add_up(self, sums: torch.Tensor, module: nn.Module, reader: RowReader, stop: StopAgreement | None) -> bool:
        """Add what this rank's rows give to `sums`; True: it has left off before the end."""
        with torch.inference_mode():
            starts = range(0, len(self._mine), self._rows_per_pass)
            for rows, y in reader.take_ahead(self._mine[start : start + self._rows_per_pass] for start in starts):
                with self.precision.autocast():
                    outputs = module(rows).to(self.precision.dtype)
                sums += self._objective.measure(outputs, y)
                if stop is not None and stop.is_asked():
                    return True
        return False


class EvenEvaluation(SplitEvaluation):
    """Measures a model whose parameters the ranks hold together, with the same number of passes on every rank.

    A rank whose rows are used up computes on rows that do not count: the others wait for its part of the parameters.
    """

    def _add_up(self, sums: torch.Tensor, module: nn.Module, reader: RowReader, stop: StopAgreement | None) -> bool:
        most = math.ceil(reader.split.rows / self._parts)
        size = min(self._rows_per_pass, most)
        with torch.no_grad():  # ZeRO keeps some parameters whole from here on: they must not be of inference mode
            for start in range(0, most, size):
                mine = self._mine[start : start + size]
                x, y = reader.take(np.pad(mine, (0, size - len(mine))))
                outputs = self._outputs(module, x)
                if outputs is not None and len(mine):
                    sums += self._objective.measure(outputs[: len(mine)].to(self.precision.dtype), y[: len(mine)])
                if stop is not None and stop.is_last():  # in the same pass on every rank
                    return True
        return False

    def _outputs(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor | None:
        """Compute the outputs for some rows; None on a rank whose outputs do not count."""
        outputs: torch.Tensor = module(rows)
        return outputs
