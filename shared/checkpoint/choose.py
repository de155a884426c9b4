"""Which checkpoint a training goes on from: the newest that is whole, and of the same training."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shared.checkpoint.files import checkpoints_newest_first, find_damage
from shared.distributed import Refusal, World


def newest_valid_checkpoint(folder: str | Path) -> Path | None:
    """Find the newest checkpoint that is whole, or None; a damaged one is passed over with a line on standard error.

    `folder` may be a folder of checkpoints or one checkpoint. All bytes are read.
    """
    for path in checkpoints_newest_first(folder):
        why = find_damage(path, whole=True)
        if why is None:
            return path
        note_damage(path, why)
    return None


def checkpoints_to_try(
    world: World | None, folder: Path, resume_from: Path | None, *, whole: bool = False
) -> Iterator[Path]:
    """Give the checkpoints of our folder, then those of `resume_from`, newest first, without those known as damaged.

    Rank 0 says which there are: another node may see a mounted folder as it was a moment ago. All ranks read them, each
    its share, and agree; `whole` reads all bytes, as is done with the last one anyway: what would be found in it later
    has no other to fall back to. A `world` of None is one process that is alone. One that is damaged is passed over
    with a line on standard error.
    """

    def known() -> list[str]:
        return [str(path) for place in (folder, resume_from) if place for path in checkpoints_newest_first(place)]

    names = (
        known()
        if world is None
        else world.once(known, name="list the checkpoints", scope="job", timeout=world.step_timeout)
    )
    for name in names:
        path, whole = Path(name), whole or name == names[-1]
        share = slice(None) if world is None else slice(world.rank, None, world.world_size)
        why = agree_on_damage(world, path, find_damage(path, share, whole=whole))
        if why is None:
            yield path
        elif world is None or world.is_main:
            note_damage(path, why)


def agree_on_damage(world: World | None, path: Path, why: str | None) -> str | None:
    """Give all ranks what the first of them has found wrong with a checkpoint, or None if it is whole for all."""
    if world is None:
        return why
    whys = world.collect(why, f"is {path.name} whole", world.solo_timeout)
    first = next((why for why in whys or () if why is not None), None)
    return world.once(lambda: first, name=f"is {path.name} whole for all", scope="job", timeout=world.step_timeout)


def note_damage(path: Path, why: str) -> None:
    """Say on standard error that a checkpoint is not used."""
    print(f"checkpoint {path} is passed over: {why}", file=sys.stderr, flush=True)


def check_same_settings(state: Mapping[str, Any], now: Mapping[str, Any], source: str | Path) -> None:
    """Compare the settings in a checkpoint's state to those of this run.

    Raises:
        Refusal: naming each setting that differs, with both values; or if there are none, as in one of Lightning's.
    """
    saved = state.get("settings")
    if not isinstance(saved, Mapping):
        raise Refusal(
            f"The checkpoint {source} was written by another component. Give one of this component, or an empty "
            "checkpoints folder and no resume_from."
        )
    differing = [name for name in now if saved.get(name) != now[name]]
    if differing:
        pairs = "; ".join(f"{name} was {saved.get(name)!r} and is now {now[name]!r}" for name in differing)
        raise Refusal(
            f"The checkpoint {source} belongs to another training: {pairs}. "
            "Use the same values, or give an empty checkpoints folder and no resume_from."
        )
