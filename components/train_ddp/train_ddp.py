"""Train with PyTorch's DistributedDataParallel: one process for each GPU, the same model in all of them.

The same seed and batch size end with the same weights on any number of ranks, and a run that was killed and is
started again with the same checkpoints folder ends with the same bits.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

from shared.distributed import World, init
from shared.settings.command_line import read_settings
from shared.settings.trainer import RowsTrainerSettings as Settings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches

if TYPE_CHECKING:
    from torch import nn

    from shared.models import NormalisedModel
    from shared.training.torch.feed import TensorBatch
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.objective import TrainingObjective
    from shared.training.torch.optimization import TrainingPrecision


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    plan = plan_batches(settings.batch)  # refuses a batch that does not divide over the ranks, before torch is imported
    with init("torch", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
        finished = train(settings, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(settings: Settings, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.models import save_model
    from shared.training.augmentation.batches import plan_augmentation
    from shared.training.core.open_data import open_data
    from shared.training.core.position import plan_checkpoints
    from shared.training.core.run import TrainingRun
    from shared.training.core.schedule import LearningSchedule
    from shared.training.torch.buckets import settle_buckets
    from shared.training.torch.evaluation import SplitEvaluation
    from shared.training.torch.feed import BatchFeed, RowReader
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.objective import objective_of
    from shared.training.torch.optimization import TrainingPrecision, make_optimizer, set_learning_rate
    from shared.training.torch.start import make_rows_model, set_up
    from shared.training.torch.state import TrainingSaver

    set_up(world, settings)
    data = open_data(settings, plan, world)
    precision = TrainingPrecision(settings.precision.precision, world.device)
    module, card = make_rows_model(settings.network, settings.precision, settings.seed, data, world, precision.dtype)
    optimizer = make_optimizer(module, settings.optimizer)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, module, optimizer, precision.scaler)
    at = saver.restore()

    loader, reader = settings.loader, RowReader(data.split("train"), world.device, settings.loader)
    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(reader, plan, world.rank, settings.loop, loader, settings.seed, augmentation)
    validation = SplitEvaluation(data, "validation", world, precision, plan, loader, settings.timeouts)
    schedule = LearningSchedule.for_steps(feed.steps, settings.optimizer.learning_rate, settings.schedule)
    model = parallel(module, world, compiled=settings.precision.compile)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    settle_buckets(model, module, feed.one_pass(), precision)

    meter = LossMeter(world, feed.timer)
    with TrainingRun(settings, world, saver, at, schedule, meter) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(optimizer, schedule(at.step))
                add_gradients(model, batch, plan, objective, precision, meter)
                precision.step(optimizer, settings.optimizer.clip_norm)
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(module, meter.stop)):
                return False
        run.finish()
        run.save_model(lambda: save_model(settings.model, module, card, settings.network.model_code))
    return True


def parallel(module: NormalisedModel, world: World, *, compiled: bool) -> nn.Module:
    """Wrap the model, then compile it: the compiler then splits its graph where DDP starts to send gradients."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model: nn.Module = module
    if world.world_size > 1:
        # Statistics never change; left in, they would be sent before each forward pass.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, ["mean", "std"])  # noqa: SLF001
        model = DistributedDataParallel(
            module,
            device_ids=[world.device] if world.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )
    return cast("nn.Module", torch.compile(model)) if compiled else model


def add_gradients(
    model: nn.Module,
    batch: TensorBatch,
    plan: BatchPlan,
    objective: TrainingObjective,
    precision: TrainingPrecision,
    meter: LossMeter,
) -> None:
    """Add up the gradients of the mean loss over the global batch, in passes; the ranks exchange them in the last."""
    passes = zip(*(tensor.split(plan.rows_per_pass) for tensor in batch), strict=True)
    for number, (rows, y) in enumerate(passes, start=1):
        alone = number < plan.accumulation_steps and plan.world_size > 1
        with model.no_sync() if alone else nullcontext():  # type: ignore[operator]  # a method of DDP
            with precision.autocast():
                loss = objective.loss(model(rows), y)
            if plan.accumulation_steps > 1:  # passes and ranks are of one size, and DDP takes the mean over the ranks
                loss = loss / plan.accumulation_steps
            precision.scaler.scale(loss).backward()
        meter.add(loss)


if __name__ == "__main__":
    main()
