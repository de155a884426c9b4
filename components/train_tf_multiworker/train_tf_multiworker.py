"""Train with TensorFlow's MultiWorkerMirroredStrategy: one process for each node, the same model on all their GPUs.

The loop is our own: under this strategy Keras 3's `fit` fails (https://github.com/keras-team/keras/issues/20585). The
same seed and batch size end with the same weights on any number of workers, and a run that was killed and is started
again with the same checkpoints folder goes on from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shared.distributed import Refusal, World, init
from shared.settings.command_line import read_settings
from shared.settings.keras import KerasTrainerSettings as Settings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches

if TYPE_CHECKING:
    import keras

    from shared.training.keras.objective import TrainingObjective


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    # Refuses a batch that does not divide over the workers, before TensorFlow is imported.
    plan = plan_batches(settings.batch)
    with init("tensorflow", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
        finished = train(settings, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(settings: Settings, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
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
    from shared.training.keras.replicas import spread_rows
    from shared.training.keras.start import make_rows_model, set_up, try_saving
    from shared.training.keras.state import TrainingSaver

    set_up(settings)
    data = open_data(settings, plan, world)
    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(data.split("train"), plan, world.rank, settings.loader, settings.seed, augmentation)
    steps = settings.loop.epochs * feed.steps_per_epoch
    schedule = LearningSchedule.for_steps(steps, settings.optimizer.learning_rate, settings.schedule)
    with world.strategy.scope():  # variables made here are kept alike on all workers
        model, card = make_rows_model(settings.network, settings.precision, settings.seed, data)
        optimizer = make_optimizer(model, schedule, settings.optimizer)
    try_saving(model, card, settings.network.model_code)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, model, optimizer)
    at = saver.restore()
    validation = SplitEvaluation(data, "validation", world, plan, settings.timeouts.step)
    check_rows(world.strategy, plan)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    step = training_step(model, optimizer, objective, world.strategy, plan, settings)

    meter = LossMeter(world, feed.timer)
    with TrainingRun(settings, world, saver, at, schedule, meter) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                rows, labels = (spread_rows(world.strategy, values) for values in batch)
                meter.add(step(rows, labels))
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(model, meter.stop)):
                return False
        run.finish()
        run.save_model(lambda: save_model(settings.model, model, card, settings.network.model_code))
    return True


def check_rows(strategy: Any, plan: BatchPlan) -> None:
    """See that each GPU of this worker has the same number of the worker's rows.

    Raises:
        Refusal: if they do not divide.
    """
    from shared.training.keras.replicas import count_replicas

    gpus = count_replicas(strategy)
    if plan.rows_per_pass % gpus:
        raise Refusal(
            f"batch_size {plan.batch_size} leaves {plan.rows_per_pass} rows to a worker at a time, which do not divide "
            f"over its {gpus} GPUs. Use a multiple of {plan.world_size * plan.accumulation_steps * gpus}."
        )


def training_step(
    model: keras.Model, optimizer: Any, objective: TrainingObjective, strategy: Any, plan: BatchPlan, settings: Settings
) -> Callable[[Any, Any], Any]:
    """Make the function that makes one optimizer step, and gives this worker's part of the batch's mean loss."""
    import tensorflow as tf

    from shared.training.keras.optimization import finish_gradients, rank_gradients

    variables = model.trainable_variables
    gradients_here = rank_gradients(model, objective, plan, compiled=settings.precision.compile)
    # Keras sums over the workers by itself, after it has clipped what one of them computed. There is no switch for it.
    optimizer._all_reduce_sum_gradients = lambda summed: summed  # noqa: SLF001

    def on_each_gpu(rows: Any, labels: Any) -> Any:
        loss, gradients = gradients_here(rows, labels)
        here = tf.distribute.get_replica_context()
        # The sum comes first, because the norm that is clipped is that of the whole batch's gradient.
        gradients = here.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        optimizer.apply(finish_gradients(gradients, variables, settings.optimizer), variables)
        return loss

    @tf.function
    def step(rows: Any, labels: Any) -> Any:
        losses = strategy.experimental_local_results(strategy.run(on_each_gpu, args=(rows, labels)))
        # The workers' parts are added up when they are reported: to do so here would be one more exchange in each step.
        return tf.add_n(losses)

    return step


if __name__ == "__main__":
    main()
