"""Finding the ZeRO stage and the micro-batch that train fastest, by short trials inside the job.

DeepSpeed's own autotuner starts a job for each trial, with its launcher, which reaches other nodes by ssh; a step of a
pipeline can do neither. The same search is made here, one engine after the other, in the processes that are there.
"""

from __future__ import annotations

import gc
import itertools
import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import torch

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.storage import make_folder, read_bytes, write_text
from shared.training.core.batch_plan import BatchPlan
from shared.training.deepspeed.config_file import MICRO_BATCH_KEY, is_set, read_section
from shared.training.deepspeed.config_keys import ZERO_KEY
from shared.training.deepspeed.configuration import DeepSpeedConfiguration
from shared.training.deepspeed.engine import make_task_model, start_engine
from shared.training.deepspeed.engine_types import DeepSpeedEngine
from shared.training.deepspeed.tuning_report import TuningDocument, speed_words, write_tuning_report
from shared.training.torch.feed import BatchFeed, RowReader, TensorBatch
from shared.training.torch.meter import LossMeter
from shared.training.torch.objective import TrainingObjective, objective_of

AddGradients: TypeAlias = Callable[[DeepSpeedEngine, TensorBatch, BatchPlan, TrainingObjective, LossMeter], None]
"""Adds up a batch's gradients and takes the step, as the training does."""

_WARM_UP, _MEASURED = 2, 6
"""Steps of a trial: those that are not timed, and those that are."""
_MICRO_BATCHES = 4
"""Sizes tried in each stage: the whole share of a rank, its half, ..."""
_KEPT_NAME = "autotuning.json"


@dataclass(frozen=True, slots=True)
class TuningTrial:
    """A stage and a micro-batch (rows of one pass), and how they did; if it failed, why there are no numbers.

    The speed is that of all ranks in the slowest rank's time, the memory that of the rank that needed most: of the GPU
    at its peak, else of the process after the last step.
    """

    zero_stage: int
    micro_batch: int
    accumulation_steps: int
    samples_per_second: float = 0.0
    memory_mb: float = 0.0
    failure: str = ""


def tune_configuration(
    config: DeepSpeedConfiguration, data: Dataset, reader: RowReader, world: World, add: AddGradients
) -> DeepSpeedConfiguration:
    """Try stages and micro-batches, report them, and return the configuration with the fastest; every rank calls this.

    The global batch stays as it is. A run that is started again takes what its first start has found: another choice
    would end with other bits.

    Raises:
        Refusal: if all trials fail.
    """
    settings, size = config.settings, (config.plan.batch_size, world.world_size)
    kept = settings.checkpoints.checkpoints / _KEPT_NAME
    earlier: TuningDocument | None = world.once(
        lambda: _earlier(kept, *size), name="earlier trials", scope="job", timeout=world.step_timeout
    )
    document = _try_all(config, data, reader, world, add) if earlier is None else earlier
    world.once(
        lambda: _keep(kept, document, settings.metrics),
        name="keep the trials",
        scope="job",
        timeout=world.step_timeout,
    )
    chosen = TuningTrial(**document["chosen"])
    world.note(f"autotune chose {_described(chosen)}")
    plan = BatchPlan(config.plan.batch_size, world.world_size, chosen.accumulation_steps)
    return config.with_split(chosen.zero_stage, plan)


def _try_all(
    config: DeepSpeedConfiguration, data: Dataset, reader: RowReader, world: World, add: AddGradients
) -> TuningDocument:
    trials = []
    for stage, plan in trial_candidates(config, world.world_size):
        trials.append(_try(config.with_split(stage, plan), data, reader, world, add))
        world.note(f"trial of {_described(trials[-1])}")
    return {
        "batch_size": config.plan.batch_size,
        "world_size": world.world_size,
        "chosen": asdict(fastest_trial(trials)),
        "trials": [asdict(trial) for trial in trials],
    }


def trial_candidates(config: DeepSpeedConfiguration, ranks: int) -> Iterator[tuple[int, BatchPlan]]:
    """Stages and splits to try: all that the file and the offload leave open."""
    stages = {"none": (0, 1, 2, 3), "optimizer": (1, 2, 3), "all": (3,)}[config.settings.zero.offload]
    if is_set(read_section(config.file, ZERO_KEY).get("stage")):
        stages = (config.stage,)
    share = config.plan.rows_per_rank
    steps = [2**power for power in range(_MICRO_BATCHES) if share % 2**power == 0]
    if is_set(config.file.get(MICRO_BATCH_KEY)):
        steps = [config.plan.accumulation_steps]
    for stage, accumulation in itertools.product(stages, steps):
        yield stage, BatchPlan(config.plan.batch_size, ranks, accumulation)


def fastest_trial(trials: Sequence[TuningTrial]) -> TuningTrial:
    """The fastest trial; of those within 3 % of it, which is less than trials differ by chance, the smallest in memory.

    Raises:
        Refusal: if all failed.
    """
    succeeded = [trial for trial in trials if not trial.failure]
    if not succeeded:
        raise Refusal(
            f"autotune: all trials failed, the last one with: {trials[-1].failure}. Use a smaller batch_size."
        )
    best = max(trial.samples_per_second for trial in succeeded)
    return min((t for t in succeeded if t.samples_per_second >= 0.97 * best), key=lambda t: t.memory_mb)


def _try(
    config: DeepSpeedConfiguration, data: Dataset, reader: RowReader, world: World, add: AddGradients
) -> TuningTrial:
    """Train some steps from the start with a fresh model, which is then thrown away."""
    settings, plan, failure, seconds = config.settings, config.plan, "", 0.0
    engine: DeepSpeedEngine | None = None
    try:
        if world.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(world.device)
        module, _ = make_task_model(settings, data, world, config.build_device(world.device))
        engine = start_engine(module, config, world.device)
        feed = BatchFeed(reader, plan, world.rank, settings.loop, settings.loader, settings.seed)
        meter, objective = LossMeter(world), objective_of(data.index, settings.optimizer.label_smoothing)
        batches = itertools.chain.from_iterable(feed.epoch(epoch) for epoch in itertools.count())
        for number, batch in enumerate(itertools.islice(batches, _WARM_UP + _MEASURED)):
            if number == _WARM_UP:
                meter.read()  # waits for the device, and for the other ranks
                began = time.perf_counter()
            add(engine, batch, plan, objective, meter)
            meter.end_step()
        meter.read()
        seconds = time.perf_counter() - began
    except torch.OutOfMemoryError:  # the ranks have the same shapes: it hits all of them, or the step's time-out does
        failure = "out of memory"
    memory = _memory(world)
    if engine is not None:
        engine.destroy()
    del engine
    gc.collect()
    torch.cuda.empty_cache()
    place = f"stage {config.stage} with {plan.rows_per_pass} rows"
    found = world.gather((seconds, memory, failure), place, settings.timeouts.step)
    failure = next((text for _, _, text in found if text), "")
    slowest, largest = max(seconds for seconds, _, _ in found), max(memory for _, memory, _ in found)
    speed = 0.0 if failure else _MEASURED * plan.batch_size / slowest
    return TuningTrial(config.stage, plan.rows_per_pass, plan.accumulation_steps, speed, largest, failure)


def _memory(world: World) -> float:
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated(world.device) / 2**20
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _described(trial: TuningTrial) -> str:
    shape = f"stage {trial.zero_stage}, micro-batch {trial.micro_batch} x {trial.accumulation_steps}"
    return (
        f"{shape}: {trial.failure or f'{speed_words(trial.samples_per_second)} samples/s, {trial.memory_mb:,.0f} MB'}"
    )


def _earlier(path: Path, batch_size: int, world_size: int) -> TuningDocument | None:
    """What an earlier start of the same run has found, on as many ranks and with the same batch."""
    try:
        document: TuningDocument = json.loads(read_bytes(path))
    except (OSError, ValueError):
        return None
    same = document.get("batch_size") == batch_size and document.get("world_size") == world_size
    return document if same else None


def _keep(path: Path, document: TuningDocument, metrics: Path) -> None:
    make_folder(path.parent)
    write_text(path, json.dumps(document))  # half of it is no JSON, and is looked for again
    write_tuning_report(metrics, document)
