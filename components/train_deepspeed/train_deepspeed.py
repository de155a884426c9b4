"""Train with DeepSpeed: ZeRO keeps the optimizer's states, the gradients and the parameters in shards over the ranks.

The stage changes how much memory a rank needs, and neither the loss nor the model. A run that was killed and is started
again with the same checkpoints folder goes on from there, on any number of ranks.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from shared.arguments import Parser, waits
from shared.distributed import World, init
from shared.training.core.batch_plan import STOPPED, BatchPlan, add_arguments, add_decoder_arguments
from shared.training.deepspeed import File, add_deepspeed_arguments, plan_batches, read_file

if TYPE_CHECKING:
    from shared.training.deepspeed.engine import Engine
    from shared.training.torch.feed import Batch
    from shared.training.torch.objective import Objective
    from shared.training.torch.progress import Meter


def parser() -> argparse.ArgumentParser:
    """Arguments of this script; component.yaml says what they mean."""
    made = Parser(description=__doc__)
    add_arguments(made, without=("precision",))
    add_decoder_arguments(made)
    add_deepspeed_arguments(made)
    return made


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    args = parser().parse_args()
    file = read_file(args.config)
    plan = plan_batches(args, file)  # refuses a batch that does not divide over the ranks, before torch is imported
    with init("deepspeed", **waits(args)) as world:
        finished = train(args, file, plan, world)
    sys.exit(0 if finished else STOPPED)


def train(args: argparse.Namespace, file: File, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    import torch

    from shared.training.core.open_data import open_data
    from shared.training.core.run import Run
    from shared.training.core.unused import note_unused
    from shared.training.deepspeed.configuration import configure
    from shared.training.deepspeed.engine import save_whole_model, start_engine
    from shared.training.deepspeed.schedule import schedule_over
    from shared.training.deepspeed.state import Saver
    from shared.training.deepspeed.tuning import tuned
    from shared.training.torch.even_evaluation import EvenEvaluation
    from shared.training.torch.feed import Feed, Reader
    from shared.training.torch.objective import objective_of
    from shared.training.torch.optimization import Precision, set_learning_rate
    from shared.training.torch.progress import Meter
    from shared.training.torch.start import make_model, set_up
    from shared.training.torch.throughput import Throughput

    set_up(world, args.step_timeout)
    data = open_data(args, plan, tasks=("classification", "regression", "language_modeling"))
    note_unused(args, data, world)
    config = configure(args, file, plan, world)  # from here on config.args: the file has a say in them
    reader = Reader(data.split("train"), world.device, args)
    if args.autotune == "true":
        config = tuned(config, data, reader, world, add_gradients)
    args, plan = config.args, config.plan
    module, card = make_model(args, data, world, torch.float32, config.first_place(world.device))
    engine = start_engine(module, config, world.device)
    saver = Saver(args, data, world, engine)
    at = saver.restore(args.resume_from)

    feed = Feed(reader, plan, world.rank, args)
    validation = EvenEvaluation(data, "validation", world, Precision("fp32", world.device), plan, args)
    schedule = schedule_over(feed.steps, args, file)
    objective = objective_of(data.index, args.label_smoothing)
    meter = Meter(world)
    with Run(args, world, saver, at, schedule, meter, Throughput(card, args, world), feed.steps_per_epoch) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(engine.optimizer, schedule(at.step))
                add_gradients(engine, batch, plan, objective, meter)  # and the step, with the last of them
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            run.end_epoch(validation.of(module))
        run.finish()
        save_whole_model(engine, card, args, data, world)
    engine.destroy()
    return True


def add_gradients(engine: Engine, batch: Batch, plan: BatchPlan, objective: Objective, meter: Meter) -> None:
    """Add up the gradients of the mean loss over the global batch, in passes; DeepSpeed takes its step in the last."""
    for rows, y in zip(*(tensor.split(plan.rows_per_pass) for tensor in batch), strict=True):
        loss = objective.loss(engine(rows).float(), y)
        meter.add(engine.backward(loss))  # which has divided it by the number of passes
        engine.step()


if __name__ == "__main__":
    main()
