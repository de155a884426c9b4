"""The batch sizes of the configuration file and of the component, which have to agree."""

from __future__ import annotations

import argparse
from typing import Any

from shared.arguments import one_voice
from shared.distributed import Refusal, detect
from shared.training.core.batch_plan import BatchPlan
from shared.training.deepspeed.file import File, given

BATCH = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"


def plan_batches(args: argparse.Namespace, file: File) -> BatchPlan:
    """Split `batch_size` over the ranks and over passes: as many as the file says, else as the arguments say.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if the numbers contradict each other
            or do not divide.
    """
    with one_voice():
        return _plan(args, file, detect().world_size)


def _plan(args: argparse.Namespace, file: File, ranks: int) -> BatchPlan:
    said = {name: file[name] for name in (BATCH, MICRO, ACCUMULATION) if given(file.get(name))}
    wrong = [f"{name} {value!r}" for name, value in said.items() if not _is_count(value)]
    if wrong:
        raise Refusal(
            f"In the configuration file {', '.join(wrong)}: it has to be a whole number of 1 or more, or auto."
        )
    batch, micro = args.batch_size, said.get(MICRO)
    if said.get(BATCH, batch) != batch:
        raise Refusal(
            f"{BATCH} is {said[BATCH]} in the configuration file, but the component's batch_size is {batch}. "
            f'Set both to one number, or {BATCH} to "auto".'
        )
    if micro is None:
        return BatchPlan(batch, ranks, said.get(ACCUMULATION, args.accumulation_steps))
    steps = said.get(ACCUMULATION, batch // (micro * ranks))
    if steps * micro * ranks != batch:
        passes = f"{steps} accumulation steps" if ACCUMULATION in said else "any whole number of accumulation steps"
        raise Refusal(
            f"{MICRO} {micro} x {passes} x {ranks} ranks"
            + (f" = {micro * steps * ranks}, which is not" if ACCUMULATION in said else " is not")
            + f' the batch_size {batch}. Change one of them, or set {MICRO} to "auto".'
        )
    return BatchPlan(batch, ranks, steps)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
