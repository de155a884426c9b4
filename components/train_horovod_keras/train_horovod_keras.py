"""Train with Horovod and Keras: one process for each GPU, started by MPI, the same model in all of them.

The loop is our own: `horovod.keras.DistributedOptimizer` runs under Keras 3 and does not exchange anything. The same
seed and batch size end with the same weights on any number of ranks, and a run that was killed and is started again
with the same checkpoints folder goes on from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shared.distributed import World, init
from shared.settings.command_line import read_settings
from shared.settings.keras import KerasTrainerSettings as Settings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches

if TYPE_CHECKING:
    import keras

    from shared.training.keras.objective import TrainingObjective


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    # Refuses a batch that does not divide over the ranks, before TensorFlow is imported.
    plan = plan_batches(settings.batch)
    with init(
        "horovod", backend="tensorflow", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step
    ) as world:
        finished = train(settings, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(settings: Settings, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    import horovod.tensorflow as hvd

    from shared.models.keras import save_model
    from shared.training.augmentation.batches import plan_augmentation
    from shared.training.core.open_data import open_data
    from shared.training.core.position import plan_checkpoints
    from shared.training.core.run import TrainingRun
    from shared.training.core.schedule import LearningSchedule
    from shared.training.keras.evaluation import SplitEvaluation
    from shared.training.keras.feed import BatchFeed
    from shared.training.keras.meter import LossMeter
    from shared.training.keras.objective import objective_of
    from shared.training.keras.optimization import make_optimizer
    from shared.training.keras.start import make_rows_model, set_up, try_saving
    from shared.training.keras.state import TrainingSaver

    set_up(settings)
    data = open_data(settings, plan, world)
    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(data.split("train"), plan, world.rank, settings.loader, settings.seed, augmentation)
    steps = settings.loop.epochs * feed.steps_per_epoch
    schedule = LearningSchedule.for_steps(steps, settings.optimizer.learning_rate, settings.schedule)
    model, card = make_rows_model(settings.network, settings.precision, settings.seed, data)
    optimizer = make_optimizer(model, schedule, settings.optimizer)
    try_saving(model, card, settings.network.model_code)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, model, optimizer)
    at = saver.restore()
    hvd.broadcast_variables([variable.value for variable in (*model.weights, *optimizer.variables)], root_rank=0)
    validation = SplitEvaluation(data, "validation", world, plan, settings.timeouts.step)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    step = training_step(model, optimizer, objective, plan, settings)

    meter = LossMeter(world, feed.timer)
    with TrainingRun(settings, world, saver, at, schedule, meter) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                meter.add(step(*batch))
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(model, meter.stop)):
                return False
        run.finish()
        run.save_model(lambda: save_model(settings.model, model, card, settings.network.model_code))
    return True


def training_step(
    model: keras.Model, optimizer: Any, objective: TrainingObjective, plan: BatchPlan, settings: Settings
) -> Callable[[Any, Any], Any]:
    """Make the function that makes one optimizer step, and gives this rank's part of the batch's mean loss."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from shared.training.keras.optimization import finish_gradients, in_buckets, rank_gradients

    variables = model.trainable_variables
    gradients_here = rank_gradients(model, objective, plan, compiled=settings.precision.compile)

    @tf.function
    def step(rows: Any, labels: Any) -> Any:
        loss, gradients = gradients_here(rows, labels)
        # What DistributedGradientTape does after a pass, done once in the last, while layers before are computed.
        if plan.world_size > 1:
            gradients = in_buckets(gradients, lambda bucket: hvd.grouped_allreduce(bucket, op=hvd.Sum))
        optimizer.apply(finish_gradients(gradients, variables, settings.optimizer), variables)
        return loss

    return step


if __name__ == "__main__":
    main()
