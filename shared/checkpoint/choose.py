"""Which checkpoint a training goes on from: the newest that is whole, and of the same training."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from shared.checkpoint.files import SHARDED_FORMAT, checkpoints_newest_first, find_damage
from shared.distributed import Refusal, World


def newest_valid_checkpoint(folder: str | Path) -> Path | None:
    """Find the newest checkpoint that is whole, or None; a damaged one is passed over with a line on standard error.

    `folder` may be a folder of checkpoints or one checkpoint.
    """
    for path in checkpoints_newest_first(folder):
        why = find_damage(path)
        if why is None:
            return path
        print(f"checkpoint {path} is passed over: {why}", file=sys.stderr, flush=True)
    return None


def choose_sharded_checkpoint(world: World, folder: str | Path, resume_from: Path | None) -> Path | None:
    """Choose the newest whole sharded checkpoint of our folder, else of `resume_from`; or None.

    Rank 0 says which there are; all ranks read them, each its share, and agree. One that is damaged is passed over with
    a line on standard error.

    Raises:
        Refusal: if `resume_from` holds no whole checkpoint.
    """

    def known() -> list[str]:
        return [str(path) for place in (folder, resume_from) if place for path in checkpoints_newest_first(place)]

    for name in world.once(known, name="list the checkpoints", scope="job"):
        path = Path(name)
        share = slice(world.rank, None, world.world_size)
        whys = world.gather(find_damage(path, SHARDED_FORMAT, share), f"is {path.name} whole", timedelta(hours=1))
        why = next((why for why in whys if why is not None), None)
        if why is None:
            return path
        if world.is_main:
            print(f"checkpoint {path} is passed over: {why}", file=sys.stderr, flush=True)
    if resume_from:
        raise Refusal(f"resume_from {resume_from} holds no whole checkpoint (step-*/manifest.json and its files).")
    return None


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
