"""The batch sizes of the configuration file and of the component, which have to agree."""

from __future__ import annotations

from shared.distributed import Refusal, detect
from shared.settings.command_line import refusing_once
from shared.settings.training import BatchSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.deepspeed.config_file import ConfigFile, is_set

BATCH_KEY = "train_batch_size"
MICRO_BATCH_KEY = "train_micro_batch_size_per_gpu"
ACCUMULATION_KEY = "gradient_accumulation_steps"


def plan_batches(batch: BatchSettings, file: ConfigFile) -> BatchPlan:
    """Split `batch_size` over the ranks and over passes: as many as the file says, else as the settings say.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if the numbers contradict each other
            or do not divide.
    """
    with refusing_once():
        return _plan(batch, file, detect().world_size)


def _plan(settings: BatchSettings, file: ConfigFile, ranks: int) -> BatchPlan:
    said = {name: file[name] for name in (BATCH_KEY, MICRO_BATCH_KEY, ACCUMULATION_KEY) if is_set(file.get(name))}
    counts = {
        name: value
        for name, value in said.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1
    }
    wrong = [f"{name} {value!r}" for name, value in said.items() if name not in counts]
    if wrong:
        raise Refusal(
            f"In the configuration file {', '.join(wrong)}: it has to be a whole number of 1 or more, or auto."
        )
    batch, micro = settings.batch_size, counts.get(MICRO_BATCH_KEY)
    if counts.get(BATCH_KEY, batch) != batch:
        raise Refusal(
            f"{BATCH_KEY} is {counts[BATCH_KEY]} in the configuration file, but the component's batch_size is {batch}. "
            f'Set both to one number, or {BATCH_KEY} to "auto".'
        )
    if micro is None:
        return BatchPlan(batch, ranks, counts.get(ACCUMULATION_KEY, settings.accumulation_steps))
    steps = counts.get(ACCUMULATION_KEY, batch // (micro * ranks))
    if steps * micro * ranks != batch:
        fixed = ACCUMULATION_KEY in counts
        passes = f"{steps} accumulation steps" if fixed else "any whole number of accumulation steps"
        raise Refusal(
            f"{MICRO_BATCH_KEY} {micro} x {passes} x {ranks} ranks"
            + (f" = {micro * steps * ranks}, which is not" if fixed else " is not")
            + f' the batch_size {batch}. Change one of them, or set {MICRO_BATCH_KEY} to "auto".'
        )
    return BatchPlan(batch, ranks, steps)
