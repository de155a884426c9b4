"""Reduce what a user's module logs over all ranks, each mean weighted by its rows, in place of Lightning's reduction.

Lightning averages whole numbers of rows over the ranks and cuts the fraction off, and without ``sync_dist`` each rank
keeps its own number. Here schedulers, callbacks and reports get one number, the same on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.connectors.logger_connector.logger_connector import _LoggerConnector
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection
from lightning.pytorch.utilities.data import extract_batch_size

from shared.distributed import Refusal, World


class RankResults(_ResultCollection):
    """What this rank has logged in one loop; `RankConnector` reduces it.

    `rows` is the weight of what is logged outside a batch; `copies` ranks have the same rows.
    """

    rows, copies = 1, 1

    def log(self, fx: str, name: str, value: Any, **options: Any) -> None:
        """Keep a number of this rank.

        Raises:
            Refusal: if it is to be reduced over some of the ranks.
        """
        if options.get("sync_dist_group") is not None:
            raise Refusal(
                f"The module logs {name} with a sync_dist_group, but a run reports numbers of all its ranks. Log "
                "without it."
            )
        super().log(fx, name, value, **{**options, "sync_dist": False})

    def _extract_batch_size(self, value: Any, batch_size: Any, _meta: Any) -> Any:
        value.is_assumed, value.is_new = batch_size is None and self.batch is None, True
        if batch_size is None:
            batch_size = 1 if self.batch is None else extract_batch_size(self.batch)
        value.rows = batch_size
        return batch_size


class RankConnector(_LoggerConnector):
    """Shares what was logged before Lightning shows it to anybody, in places that every rank comes to."""

    def __init__(self, trainer: Trainer, world: World) -> None:
        super().__init__(trainer)
        self._world, self._noted = world, set[str]()

    def share(self, *, on_step: bool = False) -> None:
        """Put the numbers of all ranks, of the last batch or the epoch so far, in place of this rank's."""
        results: Any = self.trainer._results  # noqa: SLF001
        numbers: dict[str, torch.Tensor] = {}
        entries: dict[str, tuple[Any, ...]] = {}
        for key, metric in results.valid_items():
            meta, is_tensor = metric.meta, metric.is_tensor
            if meta.on_step if on_step else meta.on_epoch:
                metric._computed = None  # noqa: SLF001  # it may be that of all ranks already
                number = metric._forward_cache if on_step else metric.compute()  # noqa: SLF001
                how = meta.reduce_fx.__name__ if is_tensor else "mean"
                # Objects of torchmetrics reduce themselves, unless they are told not to.
                is_assumed = metric.is_assumed or not (is_tensor or on_step)
                is_single = on_step or how != "mean"
                weight = results.rows if is_assumed else metric.rows if is_single else metric.cumulated_batch_size
                if isinstance(number, torch.Tensor) and number.numel() == 1:
                    numbers[key] = number
                    if metric.is_new or not on_step:  # of an earlier batch it is that of all ranks
                        entries[key] = meta.forked_name(on_step), how, float(number), float(weight), is_assumed
                metric.is_new = metric.is_new and not on_step
        every, seconds = self._world.collect(entries, "logged numbers") or [], self._world.step_timeout
        reduced = self._world.once(
            lambda: self._reduce(every, results.copies), name="logged numbers", scope="job", timeout=seconds
        )
        for key, (name, value) in reduced.items():
            if key in numbers:
                setattr(results[key], "_forward_cache" if on_step else "_computed", numbers[key].new_tensor(value))
            else:
                self._callback_metrics[name] = torch.tensor(value)

    def on_batch_end(self) -> None:
        """Share the numbers of a batch; in training where they are reported, or a scheduler may look at them."""
        loop = self.trainer.fit_loop
        stepwise = any(one.reduce_on_plateau and one.interval == "step" for one in self.trainer.lr_scheduler_configs)
        is_seen = stepwise or self.should_update_logs or loop.epoch_loop._num_ready_batches_reached()  # noqa: SLF001
        if self.trainer.validating or (is_seen and not loop._should_accumulate()):  # noqa: SLF001
            self.share(on_step=True)
        super().on_batch_end()

    def epoch_end_reached(self) -> None:
        """Share the epoch's numbers before hooks and callbacks look at them."""
        super().epoch_end_reached()
        self.share()

    def on_epoch_end(self) -> None:
        """Share what hooks at the end of the epoch have logged."""
        self.share()
        super().on_epoch_end()

    def _reduce(self, every: Sequence[Mapping[str, Sequence[Any]]], copies: int) -> dict[str, tuple[str, float]]:
        """Return name and number by key, on rank 0, and print once which are not exact, and why."""
        reduced = {}
        for key in dict.fromkeys(key for one in every for key in one):
            given = {rank: one[key] for rank, one in enumerate(every) if key in one}
            (name, *_), (how, *_), values, weights, assumed = zip(*given.values(), strict=True)
            mean = sum(value * weight for value, weight in zip(values, weights, strict=True) if weight)
            reduced[key] = (
                name,
                {
                    "mean": mean / (sum(weights) or float("nan")),
                    "sum": sum(values) / copies,
                    "max": max(values),
                    "min": min(values),
                }[how],
            )
            why = (
                f"only rank {' and '.join(map(str, given))} of {len(every)} logged it, so it covers their rows alone"
                if len(given) < len(every)
                else f"it is the {how} over the batches of all ranks, and depends on how these divide the rows"
                if how in ("max", "min")
                else "each rank has a value of its own; reported is their mean, weighted by their rows"
                if any(assumed) and len(set(values)) > 1
                else ""
            )
            if why and name not in self._noted:
                self._noted.add(name)
                self._world.note(
                    f"note: {name}: {why}. For the number of all rows log a mean of each batch on every rank, or an "
                    "object of torchmetrics."
                )
        return reduced


class SharedResults(Callback):
    """Lets a trainer share what a module logs; see `RankResults` for `rows` and `copies`, which are of validation."""

    def __init__(self, world: World, rows: int, copies: int) -> None:
        self._world, self._rows, self._copies = world, rows, copies

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the places of Lightning's own parts, before anything is logged."""
        loop, connector = trainer.fit_loop.epoch_loop, RankConnector(trainer, self._world)
        loop._results, validation = RankResults(training=True), RankResults(training=False)  # noqa: SLF001
        validation.rows, validation.copies = self._rows, self._copies
        loop.val_loop._results, trainer._logger_connector = validation, connector  # noqa: SLF001
        hook = pl_module.on_train_epoch_end
        # EarlyStopping looks at what this hook logs before Lightning comes to the epoch's end.
        pl_module.on_train_epoch_end = lambda: [run() for run in (hook, connector.share)]  # type: ignore[assignment,method-assign]
