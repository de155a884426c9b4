"""What each rank alone has to keep: a file of its own in the checkpoint, written by itself and never sent."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from shared.checkpoint.files import Seal, find_damage, seal_file
from shared.distributed import Refusal, World

VISIBLE_SECONDS: Final = 30.0
"""How long rank 0 waits until it sees what the ranks of other nodes have written: listings of mounted stores lag."""
_STAGE: Final = ".ranks"
_RANK: Final = "rank-{:05d}.json"


def stage_rank_states(world: World, folder: str | Path, own: object, timeout: timedelta) -> list[Path]:
    """Write each rank's own state beside the checkpoints, for one that rank 0 alone saves; every rank calls this.

    Rank 0 gets the files, the others nothing.
    """

    def begin_stage() -> str:
        place = Path(folder) / _STAGE
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return str(place)

    place = Path(world.once(begin_stage, name="begin the ranks' states", scope="job"))
    return [place / name for name in write_rank_states(world, place, own, timeout) or {}]


def write_rank_states(
    world: World, part: Path, own: object, timeout: timedelta, beside: Path | None = None
) -> dict[str, Seal] | None:
    """Write what each rank alone has into a folder, the same one for all ranks; every rank calls this.

    `beside` is another file that this rank has written there.

    Returns:
        Name to what `seal_file` gave of each file, on rank 0; None on the others.

    Raises:
        Refusal: if rank 0 does not see what another rank has written.
    """
    path = part / _RANK.format(world.rank)
    part.mkdir(parents=True, exist_ok=True)  # another node may not see it yet
    path.write_text(json.dumps(own, allow_nan=False), encoding="utf-8")
    sealed = {file.name: seal_file(file) for file in (beside, path) if file is not None}
    collected = world.collect(sealed, f"state of the ranks in {part.name}", timeout)
    if collected is None:
        return None
    files = {name: seal for of_rank in collected for name, seal in of_rank.items()}
    _wait_until_visible(part, files)
    return files


def _wait_until_visible(part: Path, files: Mapping[str, Seal]) -> None:
    until = time.monotonic() + VISIBLE_SECONDS
    for name, said in files.items():
        while not (part / name).is_file() or (part / name).stat().st_size != said["bytes"]:
            if time.monotonic() > until:
                raise Refusal(
                    f"Another rank has written {name} into {part}, and rank 0 does not see it. The checkpoints folder "
                    "has to be the same one on all nodes: give an output of mode rw_mount, or a shared folder."
                )
            time.sleep(0.1)


def read_rank_state(path: str | Path, rank: int) -> Any:
    """Read what a rank alone had kept in a checkpoint.

    Raises:
        Refusal: if it is not there or damaged.
    """
    name = _RANK.format(rank)
    why = find_damage(Path(path), only=[name], form=None)
    if why is not None:
        raise Refusal(f"The checkpoint {path} is damaged: {why}.")
    return json.loads((Path(path) / name).read_text(encoding="utf-8"))
