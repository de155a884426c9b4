"""Checkpoints of models that a rank has whole: rank 0 writes the tensors, all ranks read them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.checkpoint.files import (
    STATE_FILE,
    TENSORS_FILE,
    begin_checkpoint,
    find_damage,
    publish_checkpoint,
    seal_file,
)
from shared.checkpoint.ranks import write_rank_states
from shared.distributed import Refusal, World


def save_checkpoint(
    folder: str | Path,
    step: int,
    tensors: Mapping[str, Any],
    state: object,
    keep: int = 2,
    ranks: Collection[Path] = (),
) -> Path:
    """Write the checkpoint of a step and remove those that are too old; one process calls this. Returns its folder.

    `tensors` are of torch (on any device, none sharing memory with another) or NumPy arrays, not both. `keep`, 1 or
    more, is how many are kept; those of later steps go too: they belong to a future that was given up. `ranks` are the
    files that `stage_rank_states` has written; they are copied into it.
    """
    part = begin_checkpoint(folder, step)
    _write_tensors(part / TENSORS_FILE, tensors)
    files = [part / TENSORS_FILE, *(Path(shutil.copyfile(path, part / path.name)) for path in ranks)]
    return publish_checkpoint(part, step, state, {path.name: seal_file(path) for path in files}, keep)


def save_together(
    world: World,
    folder: str | Path,
    step: int,
    own: object,
    content: Callable[[], tuple[Mapping[str, Any], object]],
    timeout: timedelta,
) -> None:
    """Write the checkpoint of a step; every rank calls this, and rank 0 writes all but the others' own files.

    `content` gives the tensors, as for `save_checkpoint`, and the state; rank 0 calls it.

    Raises:
        Refusal: if the ranks do not see the same folder.
    """
    part = Path(world.once(lambda: str(begin_checkpoint(folder, step)), name=f"begin step {step}", scope="job"))
    files = write_rank_states(world, part, own, timeout)
    if files is not None:
        tensors, state = content()
        _write_tensors(part / TENSORS_FILE, tensors)
        publish_checkpoint(part, step, state, {TENSORS_FILE: seal_file(part / TENSORS_FILE), **files})


def load_checkpoint(path: str | Path) -> tuple[dict[str, Any], Any]:
    """Read one checkpoint: its tensors (torch tensors on the CPU if torch is imported, else NumPy arrays), its state.

    Raises:
        Refusal: if it is damaged.
    """
    path = Path(path)
    why = find_damage(path, only=[STATE_FILE, TENSORS_FILE])
    if why is not None:
        raise Refusal(f"The checkpoint {path} is damaged: {why}.")
    if "torch" in sys.modules:
        from safetensors.torch import load_file
    else:
        from safetensors.numpy import load_file
    return dict(load_file(path / TENSORS_FILE)), json.loads((path / STATE_FILE).read_text(encoding="utf-8"))


def _write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    if "torch" in sys.modules and any(hasattr(tensor, "detach") for tensor in tensors.values()):
        from safetensors.torch import save_file

        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    else:
        import numpy as np
        from safetensors.numpy import save_file

        save_file({name: np.asarray(array, order="C") for name, array in tensors.items()}, path)
