"""Train with Lightning's Trainer: a model of ours, or any LightningModule of the user's.

Nodes and devices come from the launch, whatever launched it, so nothing has to be set by hand under MPI either. With a
model of ours the same seed and batch size end with the weights of train_ddp. A run that was killed and is started
again with the same checkpoints folder ends with the same bits.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from shared.arguments import Parser, waits
from shared.distributed import World, init
from shared.training.core.batch_plan import STOPPED, BatchPlan, add_arguments, plan_batches

if TYPE_CHECKING:
    from lightning.pytorch.strategies import DDPStrategy

PRECISION = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": "64-true"}
"""Lightning's names for ours."""


def parser() -> argparse.ArgumentParser:
    """Arguments of this script; component.yaml says what they mean."""
    made = Parser(description=__doc__)
    add_arguments(made)
    made.add_argument("--module", help="FILE.py:CLASS in --model-code, a LightningModule; without it --architecture")
    made.add_argument("--module-arguments", help="JSON object with the arguments of the class")
    return made


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    args = parser().parse_args()
    plan = plan_batches(args)  # refuses a batch that does not divide over the ranks, before torch is imported
    with init("torch", **waits(args)) as world:
        finished = train(args, plan, world)
    sys.exit(0 if finished else STOPPED)


def train(args: argparse.Namespace, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from lightning import Trainer

    from shared.distributed.lightning_cluster import LaunchedCluster, launch_of_devices
    from shared.training.core.open_data import open_data
    from shared.training.core.run import Run
    from shared.training.core.schedule import Schedule
    from shared.training.core.unused import note_unused
    from shared.training.lightning.bookkeeping import Bookkeeping, RunLogger
    from shared.training.lightning.checkpoints import Checkpoints, Saver
    from shared.training.lightning.task import users_task, zoo_task
    from shared.training.torch.feed import Feed, Reader
    from shared.training.torch.optimization import Precision
    from shared.training.torch.passes import Passes
    from shared.training.torch.progress import Meter
    from shared.training.torch.start import set_up

    set_up(world, args.step_timeout)
    data = open_data(args, plan, tasks=("classification", "regression"))
    note_unused(args, data, world)
    precision = Precision(args.precision, world.device)
    feed = Feed(Reader(data.split("train"), world.device, args), plan, world.rank, args)
    schedule = Schedule.over(args.epochs * feed.steps_per_epoch, args)
    task = (
        users_task(args, data, world, plan, schedule)
        if args.module
        else zoo_task(args, data, world, precision, plan, feed, schedule)
    )
    saver = Saver(args, data, world, feed.steps_per_epoch)
    at, path = saver.restore(args.resume_from)

    launch = launch_of_devices(world.launch, world.device)
    meter = Meter(world)
    with Run(args, world, saver, at, task.rate, meter) as run:
        bookkeeping = Bookkeeping(run, saver, meter, plan, task.validate)
        trainer = Trainer(
            num_nodes=launch.num_nodes,
            devices=launch.local_world_size,
            accelerator="gpu" if world.device.type == "cuda" else "cpu",
            strategy=parallel(world, users=args.module is not None),
            plugins=[LaunchedCluster(launch), Checkpoints()],
            precision=PRECISION[args.precision],
            max_epochs=args.epochs,
            **task.optimization,
            callbacks=[saver, bookkeeping, *task.callbacks],
            logger=RunLogger(run),
            log_every_n_steps=args.log_every,
            use_distributed_sampler=False,  # the order of the rows is ours
            enable_checkpointing=False,  # so are the moments at which checkpoints are due
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(task.lightning, Passes(feed, plan, at, task.prepare), task.validation_rows, ckpt_path=path)
        if bookkeeping.stopped:
            return False
        run.finish()
        world.once(task.save, name="save the model", scope="job")
    return True


def parallel(world: World, *, users: bool) -> DDPStrategy | str:
    """Choose how the ranks train together.

    A module of the user's may leave parameters out of a step. DDP that looks for these also keeps its buckets as they
    are, so that a run that goes on from a checkpoint sums in the same order; for ours they are settled instead.
    """
    from lightning.pytorch.strategies import DDPStrategy

    if world.world_size == 1:
        return "auto"
    return DDPStrategy(gradient_as_bucket_view=True, find_unused_parameters=users)


if __name__ == "__main__":
    main()
