"""Fine-tune a model of Hugging Face's transformers with its Trainer: text classification, or language modelling.

The model comes from a folder, from a configuration, or is a small one from nothing. The same seed and batch size give
the same order of rows on any number of ranks; a run that was killed and is started again with the same checkpoints
folder ends with the same bits.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from shared.distributed import World, init
from shared.settings.command_line import read_settings
from shared.settings.fields import change, changed_group, input_port, output_port, settings_class
from shared.settings.network import BaseModelSettings
from shared.settings.running import LoaderSettings, SavingSettings
from shared.settings.sharding import ShardingSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import BatchSettings, LoopSettings, OptimizerSettings, PrecisionSettings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, TrainingArguments

    from shared.data import Dataset
    from shared.training.transformers.state import TrainingSaver
    from shared.training.transformers.zero import ZeroSaver


@settings_class
class Settings(TrainerSettings):
    """The inputs and outputs of this component; component.yaml is written from them."""

    data: Path = input_port(
        'A prepared text, as "Prepare text" writes it, for text_classification or for language_modeling. Prepare it '
        "with the base model's folder as tokenizer."
    )
    base: BaseModelSettings
    loop: LoopSettings = changed_group(without=["max_steps"], epochs=change(default=3))
    batch: BatchSettings = changed_group(batch_size=change(default=32))
    optimizer: OptimizerSettings = changed_group(
        without=["beta2"],
        learning_rate=change(
            "Highest learning rate, reached after the warm-up. The default suits a trained model; one that begins with "
            "random weights wants ten times as much or more.",
            default=5e-5,
        ),
        weight_decay=change(
            "Weight decay of matrices; biases, normalisation weights and embeddings are left out.", default=0.01
        ),
    )
    precision: PrecisionSettings = changed_group(
        without=["compile", "sync_batch_norm"],
        precision=change(
            "Arithmetic of the forward and backward pass. bf16 is the best choice on recent GPUs; fp16 scales the loss "
            "and needs a GPU.",
            choices=("fp32", "bf16", "fp16"),
        ),
    )
    sharding: ShardingSettings
    saving: SavingSettings
    model: Path = output_port(
        "The trained model, with its signature and its tokenizer; takes texts or their tokens and returns one logit "
        "for each class, or of a language model for each token that may come next.",
        kind="mlflow_model",
    )
    loader: LoaderSettings = changed_group(
        loader_workers=change(
            "Threads of each rank that read batches ahead; 0 reads between two steps. Datasets of language modeling "
            "below 256 MB are held in memory and read by none."
        )
    )


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    plan = plan_batches(settings.batch)  # refuses a batch that does not divide over the ranks, before torch is imported
    framework = "deepspeed" if settings.sharding.sharding == "deepspeed" else "torch"
    with init(framework, timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
        finished = train(settings, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(settings: Settings, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.models.transformers import TokenModel
    from shared.training.core.open_data import open_data
    from shared.training.core.run import TrainingRun
    from shared.training.core.schedule import LearningSchedule
    from shared.training.torch.buckets import settle_buckets
    from shared.training.torch.evaluation import EvenEvaluation, SplitEvaluation
    from shared.training.torch.feed import BatchFeed, RowReader
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.optimization import TrainingPrecision
    from shared.training.torch.start import limit_collectives, seed_generators, set_up
    from shared.training.transformers.outputs import has_unused_parameters
    from shared.training.transformers.saving import save_divided_transformer
    from shared.training.transformers.start import special_tokens
    from shared.training.transformers.trainer import FineTuner, NamedPasses, RunCallback

    set_up(world, settings)
    data = open_data(settings, plan, world, tasks=("text_classification", "language_modeling"))
    precision, loader = TrainingPrecision(settings.precision.precision, world.device), settings.loader
    is_divided, tokens = settings.sharding.is_divided, special_tokens(data)
    net = make_model(settings, data, world, precision.compute)
    module, unused = TokenModel(net, *tokens), not is_divided and has_unused_parameters(net)
    reader = RowReader(data.split("train"), world.device, loader)
    feed = BatchFeed(reader, plan, world.rank, settings.loop, loader, settings.seed)
    evaluation = EvenEvaluation if is_divided else SplitEvaluation
    validation = evaluation(data, "validation", world, precision, plan, loader, settings.timeouts)
    schedule = LearningSchedule.for_steps(feed.steps, settings.optimizer.learning_rate, settings.schedule)
    saver = make_saver(settings, data, world, net)
    at = saver.restore()
    first, meter, left = at.step, LossMeter(world, feed.timer), ceil((schedule.steps - at.step) / feed.steps_per_epoch)
    with TrainingRun(settings, world, saver, at, schedule, meter) as run, TemporaryDirectory() as scratch:

        def begin() -> None:
            if not (unused or is_divided):
                settle_buckets(TokenModel(trainer.model_wrapped, *tokens), module, feed.one_pass(), precision)
            seed_generators(settings.seed, world.rank)  # the Trainer has seeded all ranks alike; each has other rows
            saver.load()
            limit_collectives(settings.timeouts.step)  # in the groups that the Trainer has made too

        bookkeeping = RunCallback(run, partial(validation.measure, module), begin, meter.stop, feed.steps_per_epoch)
        trainer = FineTuner(
            module,
            training_arguments(settings, plan, world, scratch, epochs=left, unused=unused),
            passes=NamedPasses(feed, plan, at),
            index=data.index,
            optimizer=settings.optimizer,
            schedule=lambda step: schedule(first + step),
            meter=meter,
            callback=bookkeeping,
            compute=precision.compute,
        )
        saver.trainer = trainer
        trainer.fit()
        if bookkeeping.stopped:
            return False
        run.finish()
        save_divided_transformer(settings.model, net, saver.parts(), settings.saving, data, world)
    return True


def make_model(settings: Settings, data: Dataset, world: World, dtype: torch.dtype) -> PreTrainedModel:
    """Make the model; with FSDP each rank has its part of it, of which `dtype` is what it computes in."""
    from shared.training.transformers.start import divide_base_model, make_base_model

    divided = settings.sharding.sharding == "fsdp" and world.world_size > 1  # one rank has nothing to share
    net = make_base_model(settings.base, settings.precision, settings.seed, data, divided=divided)
    if divided:
        divide_base_model(net, settings.base, settings.seed, data, world, dtype)
    return net


def make_saver(settings: Settings, data: Dataset, world: World, net: PreTrainedModel) -> TrainingSaver | ZeroSaver:
    """Make the saver for how the training is sharded."""
    from shared.training.core.position import plan_checkpoints
    from shared.training.transformers.start import base_identity
    from shared.training.transformers.state import TrainingSaver

    base = world.once(
        lambda: base_identity(settings.base), name="identify the base model", scope="job", timeout=world.step_timeout
    )
    kept = plan_checkpoints(settings, data)
    kept = replace(kept, identity=kept.identity | base)
    if settings.sharding.sharding == "deepspeed":
        from shared.training.transformers.zero import ZeroSaver

        return ZeroSaver(kept, world)
    return TrainingSaver(kept, world, net)


def training_arguments(
    settings: Settings, plan: BatchPlan, world: World, folder: str, *, epochs: int, unused: bool
) -> TrainingArguments:
    """Tell the Trainer how the ranks share the work; what it would save, report and measure is switched off.

    It lists its `folder` at the end all the same, without a second try: one on a mount would end the training there.
    """
    from transformers import TrainingArguments

    on_cpu = world.device.type == "cpu"
    return TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=plan.rows_per_pass,
        gradient_accumulation_steps=plan.accumulation_steps,
        max_grad_norm=settings.optimizer.clip_norm,
        bf16=settings.precision.precision == "bf16",
        fp16=settings.precision.precision == "fp16",
        seed=settings.seed,
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu else None,
        ddp_find_unused_parameters=unused,
        save_strategy="no",
        logging_strategy="no",
        logging_nan_inf_filter=False,  # it would wait for the device after each pass
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **sharding_arguments(settings.sharding.sharding),
    )


def sharding_arguments(sharding: str) -> dict[str, Any]:
    """Give the Trainer's arguments for gradients and optimizer in parts; what FSDP divides is divided before."""
    if sharding != "deepspeed":
        return {}
    from shared.training.transformers.zero import ZERO_CONFIGURATION

    return {"deepspeed": ZERO_CONFIGURATION}


if __name__ == "__main__":
    main()
