"""``allranks runs remove``: a run with its outputs and logs, unless others lean on it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from allranks.cli.run_state import read_run_state, reused_runs
from allranks.errors import StorageError, UsageError
from allranks.local.assets import assets_below
from allranks.local.cache import forget_unfinished
from allranks.local.folders import RunsHome


def remove_run(args: argparse.Namespace, home: RunsHome) -> int:
    """Remove a run that is over, and on which no later run and no registered asset leans."""
    folder = home.find(args.run)
    if folder.alive:
        raise UsageError(f"run {folder.id} is running.", "End it first: Ctrl+C where it was started.")
    others = [other for other in home.all_runs() if other.id != folder.id]
    users = [other.id for other in others if folder.id in reused_runs(read_run_state(other))]
    if users and not args.force:
        raise UsageError(
            f"run {folder.id} holds outputs that other runs reuse: {', '.join(users)}.", "--force removes it."
        )
    assets = assets_below(home, folder.path)
    if assets and not args.force:
        raise UsageError(
            f"run {folder.id} holds what is registered as {', '.join(assets)}.",
            "--force removes it; a later run that names it is then refused.",
        )
    try:
        forget_unfinished(home, others)
        aside = folder.path.rename(
            folder.path.with_name(f".{folder.id}.removed")
        )  # gone at once, even if the rest is slow
        shutil.rmtree(aside, onerror=_make_writable)
    except OSError as error:
        raise StorageError(f"cannot remove {folder.path}: {error.strerror or error}.") from error
    print(json.dumps({"removed": folder.id}) if args.json else f"removed {folder.id}")
    return 0


def _make_writable(function: Callable[[str], object], path: str, _error: object) -> None:
    """Outputs and snapshots may be read-only: allow writing to the folder, then try again."""
    if not os.path.lexists(path):  # somebody else removes the same
        return
    for place in (Path(path).parent, Path(path)):
        if not place.is_symlink():
            place.chmod(0o700)
    function(path)
