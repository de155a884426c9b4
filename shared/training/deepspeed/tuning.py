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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.training.core.batch_plan import BatchPlan
from shared.training.deepspeed.batches import MICRO
from shared.training.deepspeed.configuration import Configuration
from shared.training.deepspeed.engine import start_engine
from shared.training.deepspeed.file import given, section
from shared.training.deepspeed.keys import ZERO
from shared.training.deepspeed.tuning_report import write_report
from shared.training.torch.feed import Feed, Reader
from shared.training.torch.objective import objective_of
from shared.training.torch.progress import Meter
from shared.training.torch.start import make_model

WARM_UP, MEASURED = 2, 6
"""Steps of a trial: those that are not timed, and those that are."""
MICRO_BATCHES = 4
"""Sizes tried in each stage: the whole share of a rank, its half, ..."""
KEPT = "autotuning.json"


@dataclass(frozen=True, slots=True)
class Trial:
    """A stage and a micro-batch, and how they did.

    Attributes:
        zero_stage: 0 to 3.
        micro_batch: rows of one pass.
        accumulation_steps: passes of one optimizer step.
        samples_per_second: over all ranks, of the slowest rank's time; 0 if it failed.
        memory_mb: of the rank that needed most: of the GPU at its peak, else of the process after the last step.
        failure: why there are no numbers, or an empty text.
    """

    zero_stage: int
    micro_batch: int
    accumulation_steps: int
    samples_per_second: float = 0.0
    memory_mb: float = 0.0
    failure: str = ""


def tuned(
    config: Configuration, data: Dataset, reader: Reader, world: World, add: Callable[..., None]
) -> Configuration:
    """Try stages and micro-batches, report them, and return the configuration with the fastest; every rank calls this.

    The global batch stays as it is. A run that is started again takes what its first start has found: another choice
    would end with other bits.

    Args:
        config: to change.
        data: what is trained on.
        reader: of the training rows.
        world: the ranks.
        add: adds up a batch's gradients and takes the step, as the training does.

    Raises:
        Refusal: if all trials fail.
    """
    kept = Path(config.args.checkpoints) / KEPT
    facts = {"batch_size": config.plan.batch_size, "world_size": world.world_size}
    document = world.once(lambda: _earlier(kept, facts), name="earlier trials", scope="job")
    if document is None:
        trials = []
        for stage, plan in candidates(config, world.world_size):
            trials.append(_try(config.with_(stage, plan), data, reader, world, add))
            world.note(f"trial of {_described(trials[-1])}")
        best = fastest(trials)
        document = {**facts, "chosen": asdict(best), "trials": [asdict(trial) for trial in trials]}
    world.once(lambda: _keep(kept, document, Path(config.args.metrics)), name="keep the trials", scope="job")
    chosen = Trial(**document["chosen"])
    world.note(f"autotune chose {_described(chosen)}")
    plan = BatchPlan(config.plan.batch_size, world.world_size, chosen.accumulation_steps)
    return config.with_(chosen.zero_stage, plan)


def candidates(config: Configuration, ranks: int) -> Iterator[tuple[int, BatchPlan]]:
    """Stages and splits to try: all that the file and the offload leave open."""
    stages = {"none": (0, 1, 2, 3), "optimizer": (1, 2, 3), "all": (3,)}[config.args.offload]
    if given(section(config.file, ZERO).get("stage")):
        stages = (config.stage,)
    share = config.plan.rows_per_rank
    steps = [2**power for power in range(MICRO_BATCHES) if share % 2**power == 0]
    if given(config.file.get(MICRO)):
        steps = [config.plan.accumulation_steps]
    for stage, accumulation in itertools.product(stages, steps):
        yield stage, BatchPlan(config.plan.batch_size, ranks, accumulation)


def fastest(trials: list[Trial]) -> Trial:
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


def _try(config: Configuration, data: Dataset, reader: Reader, world: World, add: Callable[..., None]) -> Trial:
    """Train some steps from the start with a fresh model, which is then thrown away."""
    plan, failure, seconds, engine = config.plan, "", 0.0, None
    try:
        if world.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(world.device)
        module, _ = make_model(config.args, data, world, torch.float32, config.first_place(world.device))
        engine = start_engine(module, config, world.device)
        feed, meter = Feed(reader, plan, world.rank, config.args), Meter(world)
        objective = objective_of(data.index, config.args.label_smoothing)
        batches = itertools.chain.from_iterable(feed.epoch(epoch) for epoch in itertools.count())
        for number, batch in enumerate(itertools.islice(batches, WARM_UP + MEASURED)):
            if number == WARM_UP:
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
    found = world.gather((seconds, memory, failure), place, timedelta(minutes=config.args.step_timeout))
    failure = next((text for _, _, text in found if text), "")
    slowest, largest = max(seconds for seconds, _, _ in found), max(memory for _, memory, _ in found)
    speed = 0.0 if failure else MEASURED * plan.batch_size / slowest
    return Trial(config.stage, plan.rows_per_pass, plan.accumulation_steps, speed, largest, failure)


def _memory(world: World) -> float:
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated(world.device) / 2**20
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _described(trial: Trial) -> str:
    shape = f"stage {trial.zero_stage}, micro-batch {trial.micro_batch} x {trial.accumulation_steps}"
    return f"{shape}: {trial.failure or f'{trial.samples_per_second:,.0f} samples/s, {trial.memory_mb:,.0f} MB'}"


def _earlier(path: Path, facts: dict[str, Any]) -> dict[str, Any] | None:
    """What an earlier start of the same run has found, on as many ranks and with the same batch."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if {name: document.get(name) for name in facts} == facts else None


def _keep(path: Path, document: dict[str, Any], metrics: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document), encoding="utf-8")
    part.replace(path)
    write_report(metrics, document)
