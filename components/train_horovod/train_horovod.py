"""Train with Horovod and PyTorch: one process for each GPU, started by MPI, the same model in all of them.

The same seed and batch size end with the same weights on any number of ranks, and with those of train_ddp. A run that
was killed and is started again with the same checkpoints folder goes on from there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from shared.distributed import World, init
from shared.settings.command_line import read_settings
from shared.settings.trainer import RowsTrainerSettings as Settings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches

if TYPE_CHECKING:
    import torch
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
    with init("horovod", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
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
    optimizer = parallel(module, make_optimizer(module, settings.optimizer), plan)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, module, optimizer, precision.scaler)
    at = saver.restore()

    loader, reader = settings.loader, RowReader(data.split("train"), world.device, settings.loader)
    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(reader, plan, world.rank, settings.loop, loader, settings.seed, augmentation)
    validation = SplitEvaluation(data, "validation", world, precision, plan, loader, settings.timeouts)
    schedule = LearningSchedule.for_steps(feed.steps, settings.optimizer.learning_rate, settings.schedule)
    model = compiled(module) if settings.precision.compile else module
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    meter = LossMeter(world, feed.timer)
    with TrainingRun(settings, world, saver, at, schedule, meter) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(optimizer, schedule(at.step))
                add_gradients(model, batch, plan, objective, precision, meter)
                optimizer.synchronize()  # before the gradients are clipped: the norm is that of the whole batch's
                with optimizer.skip_synchronize():
                    precision.step(optimizer, settings.optimizer.clip_norm)
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(module, meter.stop)):
                return False
        run.finish()
        run.save_model(lambda: save_model(settings.model, module, card, settings.network.model_code))
    return True


def parallel(module: NormalisedModel, optimizer: torch.optim.Optimizer, plan: BatchPlan) -> Any:
    """Let all ranks start with rank 0's weights, and the optimizer average the gradients of all ranks.

    The optimizer's state is not broadcast: Horovod would make a step with it to have one, and weight decay would show.
    All ranks start with none, or read the same checkpoint.
    """
    import horovod.torch as hvd

    hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    return hvd.DistributedOptimizer(
        optimizer,
        named_parameters=module.named_parameters(),
        backward_passes_per_step=plan.accumulation_steps,
    )


def compiled(module: nn.Module) -> nn.Module:
    """Compile the model; the gradients still arrive one by one, and Horovod sends them as they come."""
    import torch

    return cast("nn.Module", torch.compile(module))


def add_gradients(
    model: nn.Module,
    batch: TensorBatch,
    plan: BatchPlan,
    objective: TrainingObjective,
    precision: TrainingPrecision,
    meter: LossMeter,
) -> None:
    """Add up the gradients of the mean loss over the global batch, in passes; the ranks exchange them in the last."""
    for rows, y in zip(*(tensor.split(plan.rows_per_pass) for tensor in batch), strict=True):
        with precision.autocast():
            # Passes and ranks are of one size, and Horovod takes the mean over the ranks.
            loss = objective.loss(model(rows), y) / plan.accumulation_steps
        precision.scaler.scale(loss).backward()
        meter.add(loss)


if __name__ == "__main__":
    main()
