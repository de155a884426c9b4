"""The configuration file of DeepSpeed as the user wrote it: JSON, read before anything else is done.

Its batch sizes and those of the component have to agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from shared.distributed import Refusal, detect
from shared.settings.command_line import refusing_once
from shared.settings.training import BatchSettings
from shared.storage import JSON_BYTES, read_bytes
from shared.training.core.batch_plan import BatchPlan

BATCH_KEY = "train_batch_size"
MICRO_BATCH_KEY = "train_micro_batch_size_per_gpu"
ACCUMULATION_KEY = "gradient_accumulation_steps"
AUTO_VALUE = "auto"
"""A value that the component fills in, as with the Hugging Face Trainer."""

ConfigFile = Mapping[str, object]
"""The file's object; empty without a file."""


def read_config_file(path: Path | None) -> ConfigFile:
    """Read the configuration file; it is empty where `path` is None.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if it is no JSON object.
    """
    if path is None:
        return {}
    with refusing_once():
        return _read(path)


def _read(path: Path) -> ConfigFile:
    try:
        found: object = json.loads(read_bytes(path, JSON_BYTES))
    except OSError as error:
        raise Refusal(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise Refusal(f"The configuration file {path} is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise Refusal(
            f"The configuration file {path} has to hold a JSON object, {{...}}, not a {type(found).__name__}."
        )
    return found


def is_set(value: object) -> bool:
    """Whether the file decides a value: it is there and not "auto"."""
    return value is not None and value != AUTO_VALUE


def read_section(file: ConfigFile, *names: str) -> dict[str, object]:
    """A copy of a section, empty if it is not there or no object; the first of several names that is there."""
    for name in names:
        found = file.get(name)
        if isinstance(found, dict):
            return dict(found)
    return {}


def suggest_key(word: str, choices: Iterable[str]) -> str:
    """A hint for a word that is none of the choices: the nearest one, or nothing."""
    near = get_close_matches(word.lower(), list(choices), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


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
