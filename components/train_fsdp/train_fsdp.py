"""Train a language model that no GPU could hold: its parameters, gradients and optimizer state lie in parts on all.

Fully sharded data parallelism (PyTorch's FSDP2), and with it, where the model asks for it, tensor parallelism within a
node and pipeline parallelism between nodes. The same seed and batch size give the same losses on any number of ranks
and with any division, and a checkpoint that one number of ranks wrote another goes on from.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from shared.arguments import Parser, integer, number, waits
from shared.distributed import World, init
from shared.training.core.batch_plan import BETA, STOPPED, BatchPlan, add_arguments, add_decoder_arguments, plan_batches
from shared.training.fsdp import Layout, offloads, plan_layout

if TYPE_CHECKING:
    import torch

    from shared.models import Decoder
    from shared.training.fsdp.mesh import Mesh
    from shared.training.torch.feed import Batch
    from shared.training.torch.objective import Objective
    from shared.training.torch.optimization import Precision
    from shared.training.torch.progress import Meter


def parser() -> argparse.ArgumentParser:
    """Arguments of this script; component.yaml says what they mean."""
    made = Parser(description=__doc__)
    add_arguments(made, without=("architecture", "model_code", "precision", "sync_batch_norm"))
    add_decoder_arguments(made)
    made.set_defaults(epochs=1, learning_rate=0.003, weight_decay=0.1, label_smoothing=0.0)
    made.add_argument("--max-steps", type=integer(0), default=0, help="end after so many steps; 0: after the epochs")
    made.add_argument("--beta2", type=number(0, BETA), default=0.95, help="second beta of adam and adamw")
    made.add_argument("--precision", choices=("fp32", "bf16", "fp64"), default="fp32")
    made.add_argument("--reshard-after-forward", choices=("true", "false"), default="true")
    made.add_argument("--cpu-offload", choices=("true", "false"), default="false")
    made.add_argument("--tensor-parallel", type=integer(1), default=1, help="ranks that share each layer")
    made.add_argument(
        "--pipeline-parallel", type=integer(1), default=1, help="ranks that have the layers one after the other"
    )
    made.add_argument("--pipeline-schedule", choices=("gpipe", "1f1b"), default="1f1b")
    return made


def main() -> None:
    """Train, or go on training; exit with 143 if SIGTERM came before the end."""
    args = parser().parse_args()
    layout = plan_layout(args)  # refuses degrees that do not divide the ranks, before torch is imported
    plan = plan_batches(args, layout.data_parallel)
    with init("torch", **waits(args)) as world:
        finished = train(args, layout, plan, world)
    sys.exit(0 if finished else STOPPED)


def train(args: argparse.Namespace, layout: Layout, plan: BatchPlan, world: World) -> bool:
    """Train from the newest checkpoint to the last epoch and save the model; False if it was stopped before."""
    from shared.training.core.open_data import open_data
    from shared.training.core.run import Run
    from shared.training.core.schedule import Schedule
    from shared.training.core.unused import note_unused
    from shared.training.fsdp.evaluation import ShardedEvaluation
    from shared.training.fsdp.gather import save_whole
    from shared.training.fsdp.mesh import make_mesh
    from shared.training.fsdp.model import make_stage, materialise
    from shared.training.fsdp.optimization import clip_gradients
    from shared.training.fsdp.pipeline import Pipeline
    from shared.training.fsdp.state import Saver
    from shared.training.torch.feed import Feed, Reader
    from shared.training.torch.objective import objective_of
    from shared.training.torch.optimization import Precision, make_optimizer, set_learning_rate
    from shared.training.torch.progress import Meter
    from shared.training.torch.start import limit_waits, set_up, tokenizer_of
    from shared.training.torch.throughput import Throughput

    set_up(world, args.step_timeout)
    data = open_data(args, plan, tasks=("language_modeling",))
    note_unused(args, data, world)
    precision, mesh = Precision(args.precision, world.device), make_mesh(layout, world)
    limit_waits(args.step_timeout)  # in the groups of the mesh too
    module, card = make_stage(args, data, mesh, precision.dtype)  # takes no memory before it is divided
    compute = parallel(module, mesh, precision, args)
    materialise(module, args, world)
    optimizer = make_optimizer(module, args)
    saver = Saver(args, data, world, module, optimizer)
    at = saver.restore(args.resume_from)

    feed = Feed(Reader(data.split("train"), world.device, args), plan, mesh.data_rank, args)
    validation = ShardedEvaluation(data, "validation", world, precision, plan, args, mesh, compute)
    schedule = Schedule.over(feed.steps, args)
    objective = objective_of(data.index, args.label_smoothing)
    pipeline = Pipeline(module, mesh, compute, plan, objective, card, args) if layout.pipeline_parallel > 1 else None

    meter = Meter(world)
    with Run(args, world, saver, at, schedule, meter, Throughput(card, args, world), feed.steps_per_epoch) as run:
        for epoch in run.remaining_epochs():
            for batch in feed.epoch(epoch, at.batch):
                set_learning_rate(optimizer, schedule(at.step))
                if pipeline is None:
                    add_gradients(module, batch, plan, objective, meter)
                else:
                    pipeline.add_gradients(batch, meter)
                clip_gradients(module, args.clip_norm, world)
                optimizer.step()
                optimizer.zero_grad()
                if run.end_step():  # reports and saves where it is due; true after SIGTERM
                    return False
            run.end_epoch(validation.of(module))
        run.finish()
        save_whole(args.model, module, card, world, tokenizer_of(data))
    return True


def parallel(module: Decoder, mesh: Mesh, precision: Precision, args: argparse.Namespace) -> torch.dtype:
    """Divide a decoder over the ranks, in place; return the type that it computes in.

    The order is that in which the parts wrap each other. Tensor parallelism divides the layers; each block then
    computes its activations again, if that is wanted, and is compiled; what is left of each parameter is sharded over
    the data-parallel ranks, block by block, so that a rank has one block whole at a time. One rank runs the same code.
    """
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    from shared.training.fsdp.mesh import DATA
    from shared.training.fsdp.tensor import divide_layers
    from shared.training.torch.optimization import checkpoint_activations

    if mesh.layout.tensor_parallel > 1:
        divide_layers(module, mesh)
    if args.gradient_checkpointing == "true":
        checkpoint_activations(module)
    if args.compile == "true":
        for block in module.blocks.values():
            block.compile()
    compute = torch.bfloat16 if args.precision == "bf16" else precision.dtype
    offload = CPUOffloadPolicy() if offloads(args, mesh.devices.device_type) else OffloadPolicy()
    for part in (*module.blocks.values(), module):
        fully_shard(
            part,
            mesh=mesh.devices[DATA],
            reshard_after_forward=args.reshard_after_forward == "true",
            mp_policy=MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=precision.dtype),
            offload_policy=offload,
        )
    return compute


def add_gradients(module: Decoder, batch: Batch, plan: BatchPlan, objective: Objective, meter: Meter) -> None:
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
