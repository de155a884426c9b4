"""Train a language model that no GPU could hold: its parameters, gradients and optimizer state lie in parts on all.

Fully sharded data parallelism (PyTorch's FSDP2), and with it, where the model asks for it, tensor parallelism within a
node and pipeline parallelism between nodes. The same seed and batch size give the same losses on any number of ranks
and with any division, and a checkpoint that one number of ranks wrote another goes on from.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shared.distributed import World, init
from shared.settings.command_line import read_settings, refusing_once
from shared.settings.fields import change, changed_group, input_port, output_port, settings_class
from shared.settings.network import DecoderSizes, sizes_of_base
from shared.settings.running import CheckpointSettings, SavingSettings
from shared.settings.sharding import ParallelSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import BatchSettings, LoopSettings, OptimizerSettings, PrecisionSettings
from shared.training.core.batch_plan import EXIT_STOPPED, BatchPlan, plan_batches
from shared.training.fsdp import RankLayout, plan_layout

if TYPE_CHECKING:
    import torch

    from shared.models import DecoderModel
    from shared.training.fsdp.mesh import RankMesh
    from shared.training.torch.feed import TensorBatch
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.objective import TrainingObjective


@settings_class
class Settings(TrainerSettings):
    """The inputs and outputs of this component; component.yaml is written from them."""

    data: Path = input_port(
        'A prepared text for language modeling, as "Prepare text" writes it. Its sequence length and its tokenizer are '
        "the model's."
    )
    decoder: DecoderSizes = changed_group(
        layers=change("Blocks of the model, each attention and a perceptron. A multiple of pipeline_parallel."),
        heads=change("Heads of the attention. A multiple of tensor_parallel."),
        key_value_heads=change(
            "Heads of keys and values, where several heads of queries are to share one (grouped-query attention). Must "
            "divide the heads and be a multiple of tensor_parallel. Leave it empty for as many as heads."
        ),
        tie_embeddings=change(
            "Use one matrix for the tokens that come in and those that go out: fewer parameters, better in small "
            "models. Not with tensor_parallel or pipeline_parallel."
        ),
    )
    loop: LoopSettings = changed_group(epochs=change("Passes over the training text.", default=1))
    batch: BatchSettings = changed_group(
        batch_size=change(
            "Sequences in one optimizer step, over all GPUs together. Must be a multiple of the data-parallel degree "
            "(GPUs / tensor_parallel / pipeline_parallel) x accumulation_steps; the last partial batch of an epoch is "
            "left out."
        ),
        accumulation_steps=change(
            "Parts in which each GPU computes its share of a batch, one after the other, to use less memory. With "
            "pipeline_parallel these are the microbatches: several times as many as stages keep all stages busy."
        ),
    )
    optimizer: OptimizerSettings = changed_group(
        learning_rate=change(default=0.003),
        beta2=change("Second beta of adam and adamw.", default=0.95),
        weight_decay=change("Weight decay of matrices; norms and embeddings are left out.", default=0.1),
        label_smoothing=change(
            "Share of each token that is spread over the whole vocabulary while training. 0 turns it off, and is right "
            "where perplexity or bits per byte count.",
            default=0.0,
        ),
    )
    precision: PrecisionSettings = changed_group(
        without=["sync_batch_norm"],
        precision=change(
            "Arithmetic of the forward and backward pass. With bf16, the best choice on recent GPUs, each rank "
            "computes in bf16 and keeps its parts of parameters, gradients and optimizer state in fp32. fp64 is for "
            "exact comparisons. fp16 is not offered: it would need its loss scaled, and bf16 does not.",
            choices=("fp32", "bf16", "fp64"),
        ),
        compile=change("Compile each block with torch.compile; a minute at the start, faster steps afterwards."),
    )
    parallel: ParallelSettings
    saving: SavingSettings
    model: Path = output_port(
        "The trained model, with its tokenizer and its signature; takes tokens and returns, for each, a logit for "
        "every token that may follow. Its folder artifacts/model/huggingface is a model that transformers loads.",
        kind="mlflow_model",
    )
    checkpoints: CheckpointSettings = changed_group(
        resume_from=change(
            "Folder of checkpoints of another run of this component to continue from. A run that was interrupted "
            'continues from its own output "checkpoints" without this. With more epochs or max_steps than that run '
            "had, the further steps are trained, at the learning rates of all of them together; where these do not "
            "depend on the number of steps (schedule constant, warmup_fraction 0), the result is that of a run that "
            "had so many from the start."
        ),
        checkpoints=change(
            "The last two checkpoints, each rank's parts in a file of its own; a restarted run continues from here, on "
            "any number of GPUs."
        ),
    )
    metrics: Path = output_port(
        "metrics.json with the final numbers and those of each epoch, bits per byte and tokens per second among them."
    )


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    settings = read_settings(Settings, __doc__)
    with refusing_once():
        settings = replace(settings, decoder=sizes_of_base(settings.decoder))
    # Refuses degrees that do not divide the ranks, before torch is imported.
    layout = plan_layout(settings.parallel, settings.decoder, settings.batch.accumulation_steps)
    plan = plan_batches(settings.batch, layout.data_parallel)
    with init("torch", timeout=settings.timeouts.start, step_timeout=settings.timeouts.step) as world:
        finished = train(settings, layout, plan, world)
    sys.exit(0 if finished else EXIT_STOPPED)


def train(settings: Settings, layout: RankLayout, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.training.core.open_data import open_data
    from shared.training.core.position import plan_checkpoints
    from shared.training.core.run import TrainingRun
    from shared.training.core.schedule import LearningSchedule
    from shared.training.fsdp.evaluation import ShardedEvaluation
    from shared.training.fsdp.mesh import make_mesh
    from shared.training.fsdp.model import make_stage, materialise_stage, owned_parts
    from shared.training.fsdp.optimization import clip_gradients
    from shared.training.fsdp.pipeline_parallel import PipelineStep
    from shared.training.fsdp.state import TrainingSaver
    from shared.training.torch.feed import BatchFeed, RowReader
    from shared.training.torch.meter import LossMeter
    from shared.training.torch.objective import objective_of
    from shared.training.torch.optimization import TrainingPrecision, make_optimizer, set_learning_rate
    from shared.training.torch.saved_decoder import save_divided_decoder
    from shared.training.torch.start import limit_collectives, set_up
    from shared.training.torch.throughput import TokenThroughput

    set_up(world, settings)
    data = open_data(settings, plan, world, tasks=("language_modeling",))
    precision, mesh = TrainingPrecision(settings.precision.precision, world.device), make_mesh(layout, world)
    limit_collectives(settings.timeouts.step)  # in the groups of the mesh too
    module, card = make_stage(settings.decoder, data, mesh, precision.dtype)  # takes no memory before it is divided
    compute = parallel(module, mesh, settings, precision.dtype)
    materialise_stage(module, settings.seed, world, settings.decoder.base_model)
    optimizer = make_optimizer(module, settings.optimizer)
    saver = TrainingSaver(plan_checkpoints(settings, data), world, module, optimizer)
    at = saver.restore()

    loader, reader = settings.loader, RowReader(data.split("train"), world.device, settings.loader)
    feed = BatchFeed(reader, plan, mesh.data_rank, settings.loop, loader, settings.seed)
    validation = ShardedEvaluation(data, "validation", world, precision, plan, loader, settings.timeouts, mesh, compute)
    schedule = LearningSchedule.for_steps(feed.steps, settings.optimizer.learning_rate, settings.schedule)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    pipeline = PipelineStep(module, mesh, compute, plan, objective, card, settings.parallel) if mesh.pipelined else None
    meter, throughput = LossMeter(world, feed.timer), TokenThroughput(card, settings.precision.precision, world)
    with TrainingRun(
        settings, world, saver, at, schedule, meter, throughput, feed.steps_per_epoch, layout.stages
    ) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(optimizer, schedule(at.step))
                if pipeline is None:
                    add_gradients(module, batch, plan, objective, meter)
                else:
                    pipeline.add_gradients(batch, meter)
                clip_gradients(module, settings.optimizer.clip_norm, world)
                optimizer.step()
                optimizer.zero_grad()
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            if run.end_epoch(validation.measure(module, meter.stop)):
                return False
        run.finish()
        save_divided_decoder(settings.model, owned_parts(module), card, settings.saving, precision.dtype, data, world)
    return True


def parallel(module: DecoderModel, mesh: RankMesh, settings: Settings, dtype: torch.dtype) -> torch.dtype:
    """Divide a decoder over the ranks, in place; return the type that it computes in.

    The order is that in which the parts wrap each other. Tensor parallelism divides the layers; each block then
    computes its activations again, if that is wanted, and is compiled; what is left of each parameter is sharded over
    the data-parallel ranks, block by block, so that a rank has one block whole at a time. One rank runs the same code.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from shared.training.fsdp.mesh import DATA
    from shared.training.fsdp.tensor_parallel import divide_layers
    from shared.training.torch.optimization import checkpoint_activations

    if mesh.layout.tensor_parallel > 1:
        divide_layers(module, mesh)
    if settings.precision.gradient_checkpointing:
        checkpoint_activations(module)
    if settings.precision.compile:
        for block in module.blocks.values():
            block.compile()
    compute = torch.bfloat16 if settings.precision.precision == "bf16" else dtype
    # To ask for a type where all have it already would have FSDP look for what to cast in front of each part.
    arithmetic = MixedPrecisionPolicy() if compute is dtype else MixedPrecisionPolicy(compute, reduce_dtype=dtype)
    reshards = settings.parallel.reshard_after_forward
    for part in (*module.blocks.values(), module):
        is_next = part is module and not mesh.pipelined  # what the backward pass begins with
        fully_shard(
            part,
            mesh=mesh.devices[DATA],
            reshard_after_forward=reshards and not is_next,
            mp_policy=arithmetic,
        )
    return compute


def add_gradients(
    module: DecoderModel, batch: TensorBatch, plan: BatchPlan, objective: TrainingObjective, meter: LossMeter
) -> None:
    """Add up the gradients of the mean loss over the global batch, in passes.

    The ranks exchange them in each pass, unlike DDP's: to keep whole gradients until the last one would take the memory
    that sharding saves.
    """
    for rows, y in zip(*(tensor.split(plan.rows_per_pass) for tensor in batch), strict=True):
        loss = objective.loss(module(rows), y) / plan.accumulation_steps  # FSDP takes the mean over the ranks
        loss.backward()
        meter.add(loss)


if __name__ == "__main__":
    main()
