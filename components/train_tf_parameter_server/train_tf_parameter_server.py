"""Train with TensorFlow's ParameterServerStrategy: the weights lie on servers, and no worker waits for another.

Worker 0 hands out the steps, and computes some of them itself like every other worker. A step is one whole batch on one
worker, so steps overlap, and two runs do not end with the same weights. A run that was killed and is started again with
the same checkpoints folder goes on from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shared.distributed import World, init
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, settings_class
from shared.settings.keras import KERAS_NETWORK, KERAS_PRECISION, KerasTrainerSettings
from shared.settings.network import NetworkSettings
from shared.settings.running import ReportSettings, TimeoutSettings
from shared.settings.training import BatchSettings, OptimizerSettings, PrecisionSettings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches
from shared.training.core.stopping import end_service, serve_training

if TYPE_CHECKING:
    import keras

    from shared.training.keras.objective import TrainingObjective


@settings_class
class Settings(KerasTrainerSettings):
    """The inputs and outputs of this component; component.yaml is written from them."""

    network: NetworkSettings = changed_group(
        without=["initial_weights", "normalization"], architecture=change(KERAS_NETWORK)
    )
    batch: BatchSettings = changed_group(
        batch_size=change(
            "Rows in one optimizer step, which one worker makes by itself; the last partial batch of an epoch is left "
            "out."
        ),
        accumulation_steps=change("Parts in which a worker computes a batch, one after the other, to use less memory."),
    )
    # XLA reads no variables of other processes
    precision: PrecisionSettings = changed_group(
        without=["gradient_checkpointing", "sync_batch_norm", "compile"], precision=KERAS_PRECISION
    )
    reports: ReportSettings = changed_group(
        log_every=change(
            "Steps between two lines of metrics. At these steps worker 0 waits for all others: a loss that is not "
            "finite is acted upon here, a request to stop after any step."
        )
    )
    timeouts: TimeoutSettings = changed_group(without=["step_timeout"])  # a coordinator waits without a limit


def main() -> None:
    """Train, or serve worker 0 until it is done; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    plan = plan_batches(settings.batch, world_size=1)  # a batch is not split: each worker computes whole ones
    with init("tensorflow", backend="parameter_server", timeout=settings.timeouts.start) as world:
        if world.coordinator is None:
            finished = serve_training(world)
        else:
            finished = train(settings, plan, world)
            end_service(world)
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
    from shared.training.keras.start import make_rows_model, set_up, try_saving
    from shared.training.keras.state import TrainingSaver

    set_up(settings)
    data = open_data(settings, plan, world)
    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(data.split("train"), plan, 0, settings.loader, settings.seed, augmentation)
    steps = settings.loop.epochs * feed.steps_per_epoch
    schedule = LearningSchedule.for_steps(steps, settings.optimizer.learning_rate, settings.schedule)
    with world.strategy.scope():  # variables made here lie on the servers
        model, card = make_rows_model(settings.network, settings.precision, settings.seed, data)
        optimizer = make_optimizer(model, schedule, settings.optimizer)
    try_saving(model, card, settings.network.model_code)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, model, optimizer, alone=True)
    at = saver.restore()
    validation = SplitEvaluation(data, "validation", world, plan, None, alone=True)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    step = training_step(model, optimizer, objective, world.strategy, plan, settings.optimizer)

    meter = LossMeter(world, feed.timer, alone=True)
    with TrainingRun(settings, world, saver, at, schedule, meter) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                meter.add(world.coordinator.schedule(step, args=batch))  # read when it is due: that waits for the steps
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(model, meter.stop)):
                return False
        run.finish()
        run.save_model(lambda: save_model(settings.model, model, card, settings.network.model_code))
    return True


def training_step(
    model: keras.Model,
    optimizer: Any,
    objective: TrainingObjective,
    strategy: Any,
    plan: BatchPlan,
    settings: OptimizerSettings,
) -> Callable[[Any, Any], Any]:
    """Make the function that makes one optimizer step on one worker, and gives the batch's mean loss."""
    import tensorflow as tf

    from shared.training.keras.optimization import finish_gradients, rank_gradients

    variables = model.trainable_variables
    gradients_here = rank_gradients(model, objective, plan)

    def on_the_worker(rows: Any, labels: Any) -> Any:
        loss, gradients = gradients_here(rows, labels)
        optimizer.apply(finish_gradients(gradients, variables, settings), variables)
        return loss

    @tf.function
    def step(rows: Any, labels: Any) -> Any:
        return strategy.run(on_the_worker, args=(rows, labels))

    return step


if __name__ == "__main__":
    main()
