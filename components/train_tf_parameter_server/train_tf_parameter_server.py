"""Train with TensorFlow's ParameterServerStrategy: the weights lie on servers, and no worker waits for another.

Worker 0 hands out the steps, and computes some of them itself like every other worker. A step is one whole batch on one
worker, so steps overlap, and two runs do not end with the same weights. A run that was killed and is started again with
the same checkpoints folder goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shared.arguments import Parser
from shared.distributed import World, init
from shared.training.core.batch_plan import STOPPED, BatchPlan, plan_batches
from shared.training.keras.arguments import add_keras_arguments

if TYPE_CHECKING:
    import keras

    from shared.training.keras.objective import Objective


def parser() -> argparse.ArgumentParser:
    """Arguments of this script; component.yaml says what they mean."""
    made = Parser(description=__doc__)
    # XLA reads no variables of other processes, and a coordinator waits for its workers without a limit.
    add_keras_arguments(made, without=("compile", "step_timeout"))
    return made


def main() -> None:
    """Train, or compute for worker 0 until it is done; exit with 143 if SIGTERM came before the end."""
    args = parser().parse_args()
    plan = plan_batches(args, world_size=1)  # a batch is not split: each worker computes whole ones
    finished = True
    with init("tensorflow", backend="parameter_server", timeout=timedelta(minutes=args.init_timeout)) as world:
        if world.coordinator is not None:
            finished = train(args, plan, world)
    sys.exit(0 if finished else STOPPED)


def train(args: argparse.Namespace, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.models.keras import save_model
    from shared.training.core.open_data import open_data
    from shared.training.core.run import Run
    from shared.training.core.schedule import Schedule
    from shared.training.core.unused import note_unused
    from shared.training.keras.evaluation import Evaluation
    from shared.training.keras.feed import Feed
    from shared.training.keras.objective import objective_of
    from shared.training.keras.optimization import make_optimizer
    from shared.training.keras.progress import Meter
    from shared.training.keras.start import make_model, set_up, try_saving
    from shared.training.keras.state import Saver

    set_up()
    data = open_data(args, plan, tasks=("classification", "regression"))
    note_unused(args, data, world)
    feed = Feed(data.split("train"), plan, 0, args)
    schedule = Schedule.over(args.epochs * feed.steps_per_epoch, args)
    with world.strategy.scope():  # variables made here lie on the servers
        model, card = make_model(args, data)
        optimizer = make_optimizer(model, schedule, args)
    try_saving(args, model, card)
    saver = Saver(args, data, world, model, optimizer)
    at = saver.restore(args.resume_from)
    validation = Evaluation(data, "validation", world, plan, args, alone=True)
    objective = objective_of(data.index, args.label_smoothing)
    step = training_step(model, optimizer, objective, world.strategy, plan, args)

    meter = Meter(world, alone=True)
    with Run(args, world, saver, at, schedule, meter) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                meter.add(world.coordinator.schedule(step, args=batch))  # read when it is due: that waits for the steps
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            run.end_epoch(validation.of(model))
        run.finish()
        world.once(lambda: save_model(args.model, model, card, args.model_code), name="save the model", scope="job")
    return True


def training_step(
    model: keras.Model, optimizer: Any, objective: Objective, strategy: Any, plan: BatchPlan, args: argparse.Namespace
) -> Callable[[Any, Any], Any]:
    """Make the function that makes one optimizer step on one worker, and gives the batch's mean loss."""
    import tensorflow as tf

    from shared.training.keras.optimization import finish_gradients
    from shared.training.keras.step import gradients_of

    variables = model.trainable_variables
    gradients_here = gradients_of(model, objective, plan)

    def on_the_worker(rows: Any, labels: Any) -> Any:
        loss, gradients = gradients_here(rows, labels)
        optimizer.apply(finish_gradients(gradients, variables, args), variables)
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def step(rows: Any, labels: Any) -> Any:
        return strategy.run(on_the_worker, args=(rows, labels))

    return step


if __name__ == "__main__":
    main()
