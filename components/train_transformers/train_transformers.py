"""Fine-tune a model of Hugging Face's transformers with its Trainer: text classification, or language modelling.

The model comes from a folder, from a configuration, or is a small one from nothing. The same seed and batch size give
the same order of rows on any number of ranks; a run that was killed and is started again with the same checkpoints
folder ends with the same bits.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from shared.arguments import Parser, waits
from shared.distributed import World, init
from shared.training.core.batch_plan import STOPPED, BatchPlan, add_arguments, plan_batches

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainingArguments

    from shared.data import Dataset
    from shared.training.transformers.checkpoints import Saver

WITHOUT = ("architecture", "model_code", "precision", "compile", "sync_batch_norm")
"""Common arguments that mean something else here, or nothing."""


def parser() -> argparse.ArgumentParser:
    """Arguments of this script; component.yaml says what they mean."""
    made = Parser(description=__doc__)
    add_arguments(made, without=WITHOUT)
    made.add_argument("--base-model", help="folder with config.json, model.safetensors and the tokenizer")
    made.add_argument("--base-config", help="config.json of a model that begins with random weights")
    made.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    made.add_argument("--sharding", choices=("none", "fsdp", "deepspeed"), default="none")
    made.set_defaults(epochs=3, batch_size=32, learning_rate=5e-5, weight_decay=0.01)  # what suits a trained model
    return made


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    args = parser().parse_args()
    plan = plan_batches(args)  # refuses a batch that does not divide over the ranks, before torch is imported
    framework = "deepspeed" if args.sharding == "deepspeed" else "torch"
    with init(framework, **waits(args)) as world:
        finished = train(args, plan, world)
    sys.exit(0 if finished else STOPPED)


def train(args: argparse.Namespace, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.models.transformers import TokenModel
    from shared.training.core.open_data import open_data
    from shared.training.core.run import Run
    from shared.training.core.schedule import Schedule
    from shared.training.core.unused import note_unused
    from shared.training.torch.buckets import settle_buckets
    from shared.training.torch.evaluation import Evaluation
    from shared.training.torch.even_evaluation import EvenEvaluation
    from shared.training.torch.feed import Feed, Reader
    from shared.training.torch.objective import objective_of
    from shared.training.torch.optimization import Precision
    from shared.training.torch.progress import Meter
    from shared.training.torch.start import limit_waits, seed_all, set_up
    from shared.training.transformers.base import leaves_out, make_net, padding_of
    from shared.training.transformers.trainer import Bookkeeping, FineTuner, Inputs, make_saver

    set_up(world, args.step_timeout)
    data = open_data(args, plan, tasks=("text_classification", "language_modeling"))
    note_unused(args, data, world)
    precision = Precision(args.precision, world.device)
    net, padding = make_net(args, data), padding_of(data)
    module, leaving_out = TokenModel(net, padding), leaves_out(net)
    feed = Feed(Reader(data.split("train"), world.device, args), plan, world.rank, args)
    measure = Evaluation if args.sharding == "none" else EvenEvaluation
    validation = measure(data, "validation", world, precision, plan, args)
    schedule = Schedule.over(args.epochs * feed.steps_per_epoch, args)
    saver = make_saver(args, data, world, feed.steps_per_epoch)
    at = saver.restore(args.resume_from)
    first, meter = at.step, Meter(world)
    with Run(args, world, saver, at, schedule, meter) as run:

        def begin() -> None:
            if not leaving_out and args.sharding == "none":
                settle_buckets(TokenModel(trainer.model_wrapped, padding), module, feed.one_pass(), precision)
            seed_all(args.seed, world.rank)  # the Trainer has seeded all ranks alike, and each has other rows
            saver.load()
            limit_waits(args.step_timeout)  # in the groups that the Trainer has made too

        bookkeeping = Bookkeeping(run, saver, lambda: validation.of(module), begin)
        trainer = FineTuner(
            net,
            training_arguments(args, plan, world, epochs=args.epochs - at.epoch, leaving_out=leaving_out),
            args=args,
            inputs=Inputs(feed, plan, at),
            objective=objective_of(data.index, args.label_smoothing),
            schedule=lambda step: schedule(first + step),
            padding=padding,
            saver=saver,
            meter=meter,
            callbacks=[bookkeeping],
        )
        trainer.train()
        if bookkeeping.stopped:
            return False
        run.finish()
        save(args, net, saver, data, world)
    return True


def save(args: argparse.Namespace, net: PreTrainedModel, saver: Saver, data: Dataset, world: World) -> None:
    """Gather the weights, wherever they are, and save the model on rank 0."""
    from shared.models.transformers import save_model
    from shared.training.torch.start import tokenizer_of
    from shared.training.transformers.base import card_of

    state, card = saver.weights(), card_of(net, data)
    world.once(lambda: save_model(args.model, net, state, card, tokenizer_of(data)), name="save the model", scope="job")


def training_arguments(
    args: argparse.Namespace, plan: BatchPlan, world: World, *, epochs: int, leaving_out: bool
) -> TrainingArguments:
    """Tell the Trainer how the ranks share the work; what it would save, report and measure is switched off."""
    from transformers import TrainingArguments

    on_cpu = world.device.type == "cpu"
    return TrainingArguments(
        output_dir=args.checkpoints,
        num_train_epochs=epochs,
        per_device_train_batch_size=plan.rows_per_pass,
        gradient_accumulation_steps=args.accumulation_steps,
        max_grad_norm=args.clip_norm,
        bf16=args.precision == "bf16",
        fp16=args.precision == "fp16",
        seed=args.seed,
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu else None,
        ddp_find_unused_parameters=leaving_out,
        save_strategy="no",
        logging_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **sharded(args.sharding, world),
    )


def sharded(how: str, world: World) -> dict[str, Any]:
    """Give the Trainer's arguments for model, gradients and optimizer in parts, one on each rank."""
    if how == "fsdp" and world.world_size > 1:  # one rank has nothing to share, and the Trainer refuses it
        return {"fsdp": True, "fsdp_config": {"version": 2}}
    if how == "deepspeed":
        from shared.training.transformers.zero import CONFIGURATION

        return {"deepspeed": CONFIGURATION}
    return {}


if __name__ == "__main__":
    main()
