"""Train with Lightning's Trainer: a model of ours, or any LightningModule of the user's.

Nodes and devices come from the launch, whatever launched it, so nothing has to be set by hand under MPI either. With a
model of ours the same seed and batch size end with the weights of train_ddp. A run that was killed and is started
again with the same checkpoints folder ends with the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

from shared.distributed import World, init
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, settings_class
from shared.settings.network import ModuleSettings
from shared.settings.trainer import RowsTrainerSettings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches

if TYPE_CHECKING:
    from lightning.pytorch.strategies import DDPStrategy


_PRECISIONS: Final[Mapping[str, Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]]] = {
    "fp32": "32-true",
    "bf16": "bf16-mixed",
    "fp16": "16-mixed",
    "fp64": "64-true",
}
"""Lightning's names for ours."""


@settings_class
class Settings(RowsTrainerSettings):
    """The inputs and outputs of this component; component.yaml is written from them."""

    network: ModuleSettings = changed_group(
        model_code=change(
            'Folder with your code, when "architecture" is FILE.py:FUNCTION, or for "module"; otherwise it has no '
            "effect."
        )
    )


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    plan = plan_batches(settings.batch)  # refuses a batch that does not divide over the ranks, before torch is imported
    with init("torch", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
        finished = train(settings, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(settings: Settings, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from lightning import Trainer

    from shared.distributed.lightning_cluster import LaunchedCluster, launch_of_devices
    from shared.training.augmentation.batches import plan_augmentation
    from shared.training.core.open_data import open_data
    from shared.training.core.position import plan_checkpoints
    from shared.training.core.run import TrainingRun
    from shared.training.core.schedule import LearningSchedule
    from shared.training.core.stopping import StoppedError
    from shared.training.lightning.bookkeeping import RunCallback, RunLogger
    from shared.training.lightning.state import TrainingSaver
    from shared.training.lightning.task import make_own_task, make_zoo_task
    from shared.training.torch.feed import BatchFeed, RowReader
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.optimization import TrainingPrecision
    from shared.training.torch.passes import EpochPasses
    from shared.training.torch.start import set_up

    own = bool(settings.network.module)
    set_up(world, settings)
    data = open_data(settings, plan, world)
    precision, loader = TrainingPrecision(settings.precision.precision, world.device), settings.loader
    reader = RowReader(data.split("train"), world.device, loader)
    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(reader, plan, world.rank, settings.loop, loader, settings.seed, augmentation)
    schedule = LearningSchedule.for_steps(feed.steps, settings.optimizer.learning_rate, settings.schedule)
    common = settings, settings.network, data, world, precision, plan
    task = make_own_task(*common, schedule) if own else make_zoo_task(*common, feed, schedule)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, feed.steps_per_epoch)
    at, path = saver.restore(), saver.path
    launch, meter = launch_of_devices(world.launch, world.device), LossMeter(world, feed.timer)
    with TrainingRun(settings, world, saver, at, task.rate, meter) as run, suppress(StoppedError):
        bookkeeping = RunCallback(run, saver, meter, plan, task.validate)
        clip = settings.optimizer.clip_norm if task.lightning.automatic_optimization else None
        trainer = Trainer(
            num_nodes=launch.num_nodes,
            devices=launch.local_world_size,
            accelerator="gpu" if world.device.type == "cuda" else "cpu",
            strategy=parallel(world, own=own),
            plugins=[LaunchedCluster(launch), saver.io],
            precision=_PRECISIONS[settings.precision.precision],
            max_epochs=settings.loop.epochs,
            accumulate_grad_batches=plan.accumulation_steps,
            gradient_clip_val=clip or None,
            callbacks=[saver, bookkeeping, *task.callbacks],
            logger=RunLogger(run),
            log_every_n_steps=settings.reports.log_every,
            use_distributed_sampler=False,  # the order of the rows is ours
            enable_checkpointing=False,  # so are the moments at which checkpoints are due
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(task.lightning, EpochPasses(feed, plan, at, task.prepare), task.validation_passes, ckpt_path=path)
        if not bookkeeping.stopped:
            run.finish()
            run.save_model(task.save)
    return not bookkeeping.stopped


def parallel(world: World, *, own: bool) -> DDPStrategy | str:
    """Choose how the ranks train together.

    A module of the user's may leave parameters out of a step. DDP that looks for these also keeps its buckets as they
    are, so that a run that goes on from a checkpoint sums in the same order; for ours they are settled instead.
    """
    from lightning.pytorch.strategies import DDPStrategy

    if world.world_size == 1:
        return "auto"
    return DDPStrategy(gradient_as_bucket_view=True, find_unused_parameters=own)


if __name__ == "__main__":
    main()
