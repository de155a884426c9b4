"""Train with DeepSpeed: ZeRO keeps the optimizer's states, the gradients and the parameters in shards over the ranks.

The stage changes how much memory a rank needs, and neither the loss nor the model. A run that was killed and is started
again with the same checkpoints folder goes on from there, on any number of ranks.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared.distributed import World, init
from shared.settings.command_line import read_settings, refusing_once
from shared.settings.deepspeed import DeepSpeedSettings
from shared.settings.fields import change, changed_group, input_port, output_port, settings_class
from shared.settings.network import DecoderSizes, NetworkSettings, sizes_of_base
from shared.settings.running import CheckpointSettings
from shared.settings.training import PrecisionSettings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan
from shared.training.deepspeed import ConfigFile, plan_batches, read_config_file

if TYPE_CHECKING:
    from shared.training.deepspeed.engine_types import DeepSpeedEngine
    from shared.training.torch.feed import TensorBatch
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.objective import TrainingObjective


@settings_class
class Settings(DeepSpeedSettings):
    """The inputs and outputs of this component; component.yaml is written from them."""

    data: Path = input_port(
        'A prepared dataset: images or a table with classes or with a number to predict, as "Prepare data" writes it, '
        'or a text for language modeling, as "Prepare text" writes it.'
    )
    network: NetworkSettings = changed_group(
        architecture=change(
            "mlp; resnet or vit, small ones for images; resnet18, resnet34, resnet50, vit_s or vit_b for images too; "
            "vit_small_patch16 or vit_base_patch16, as weights are published for them; or FILE.py:FUNCTION in the "
            'folder "model_code". Tables take mlp. The function takes (input_shape, num_outputs) and returns a '
            "torch.nn.Module for channels-first batches. For a text leave it as it is: it has a language model of the "
            "sizes below."
        )
    )
    decoder: DecoderSizes = changed_group(
        layers=change(
            "For a text, blocks of the model, each attention and a perceptron. Images and tables have no use for it."
        ),
        width=change(
            "For a text, size of a token's vector, a multiple of twice the heads. 4 layers of 128 have 0.8 million "
            "parameters, 12 of 768 have 85 million, 32 of 4096 have 6.5 billion; the tokens' own come on top."
        ),
        heads=change("For a text, heads of the attention."),
        key_value_heads=change(
            "For a text, heads of keys and values, where several heads of queries are to share one (grouped-query "
            "attention). Must divide the heads. Leave it empty for as many as heads."
        ),
        feed_forward_width=change(
            "For a text, hidden size of a block's perceptron. Leave it empty for 8/3 of the width."
        ),
        context_length=change(
            "For a text, longest sequence of tokens that the model takes, as long as those of the data at least. Leave "
            "it empty for the same."
        ),
        tie_embeddings=change(
            "For a text, use one matrix for the tokens that come in and those that go out: fewer parameters, better in "
            "small models."
        ),
    )
    precision: PrecisionSettings = changed_group(
        precision=change(
            "Arithmetic of the forward and backward pass. In bf16 and fp16 the parameters have 16 bits too, and the "
            "optimizer keeps a copy of them in fp32. bf16 is the best choice on recent GPUs; fp16 scales the loss and "
            "needs a GPU.",
            choices=("fp32", "bf16", "fp16"),
        )
    )
    model: Path = output_port(
        "The trained model, with its signature; takes raw rows of the dataset and returns one logit per class, the "
        "predicted value of a regression, or the logits of each next token.",
        kind="mlflow_model",
    )
    checkpoints: CheckpointSettings = changed_group(
        resume_from=change(
            "Folder of checkpoints of another run to continue from. A run that was interrupted continues from its own "
            'output "checkpoints" without this. With more epochs or max_steps than that run had, the further steps are '
            "trained, at the learning rates of all of them together; where these do not depend on the number of steps "
            "(schedule constant, warmup_fraction 0), the result is that of a run that had so many from the start."
        )
    )


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    with refusing_once():
        settings = replace(settings, decoder=sizes_of_base(settings.decoder))
    file = read_config_file(settings.zero.config)
    plan = plan_batches(settings.batch, file)  # refuses a batch that does not divide, before torch is imported
    with init("deepspeed", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
        finished = train(settings, file, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(given: Settings, file: ConfigFile, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.training.augmentation.batches import plan_augmentation
    from shared.training.core.open_data import open_data
    from shared.training.core.position import plan_checkpoints
    from shared.training.core.run import TrainingRun
    from shared.training.deepspeed.configuration import make_configuration
    from shared.training.deepspeed.engine import make_task_model, start_engine
    from shared.training.deepspeed.saving import save_trained_model
    from shared.training.deepspeed.schedule import make_schedule
    from shared.training.deepspeed.state import TrainingSaver
    from shared.training.torch.evaluation import EvenEvaluation
    from shared.training.torch.feed import BatchFeed, RowReader
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.objective import objective_of
    from shared.training.torch.optimization import TrainingPrecision, set_learning_rate
    from shared.training.torch.start import set_up
    from shared.training.torch.throughput import TokenThroughput

    set_up(world, given)
    data = open_data(given, plan, world, tasks=("classification", "regression", "language_modeling"))
    config, loader = make_configuration(given, file, plan, world), given.loader
    reader = RowReader(data.split("train"), world.device, loader)
    settings, plan = config.settings, config.plan  # the file has had a say in them
    module, card = make_task_model(settings, data, world, config.build_device(world.device))
    engine = start_engine(module, config, world.device)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, engine)
    at = saver.restore()

    augmentation = plan_augmentation(settings.augmentation, data.index, settings.seed)
    feed = BatchFeed(reader, plan, world.rank, settings.loop, loader, settings.seed, augmentation)
    precision = TrainingPrecision("fp32", world.device)
    validation = EvenEvaluation(data, "validation", world, precision, plan, loader, settings.timeouts)
    schedule = make_schedule(feed.steps, settings.optimizer.learning_rate, settings.schedule, file)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    meter, throughput = LossMeter(world, feed.timer), TokenThroughput(card, settings.precision.precision, world)
    with TrainingRun(settings, world, saver, at, schedule, meter, throughput, feed.steps_per_epoch) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(engine.optimizer, schedule(at.step))
                add_gradients(engine, batch, plan, objective, meter)  # and the step, with the last of them
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(module, meter.stop)):
                return False
        run.finish()
        save_trained_model(engine, card, settings, data, world)
    engine.destroy()
    return True


def add_gradients(
    engine: DeepSpeedEngine, batch: TensorBatch, plan: BatchPlan, objective: TrainingObjective, meter: LossMeter
) -> None:
    """Add up the gradients of the mean loss over the global batch, in passes; DeepSpeed takes its step in the last."""
    for rows, y in zip(*(tensor.split(plan.rows_per_pass) for tensor in batch), strict=True):
        loss = objective.loss(engine(rows).float(), y)
        meter.add(engine.backward(loss))  # which has divided it by the number of passes
        engine.step()


if __name__ == "__main__":
    main()
