"""What can be seen from outside of the checkpoints that a step has written: which one is the newest that is whole.

Ours are folders ``step-00000120`` with a manifest, which is written last. Of others the name is what is known:
``checkpoint-120`` (transformers), ``epoch=3-step=120.ckpt`` (Lightning), ``global_step120`` (DeepSpeed),
``iter_0000120`` (Megatron), ``model_epoch_3.pt``. A file without such a number says nothing of how far a step has
come: each attempt may have written it anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from allranks.local.record_shapes import read_json_file

_OWN = re.compile(r"step-\d{8,}")
_OTHERS = re.compile(r"(step|checkpoint|ckpt|epoch|iter)s?[-_=]?0*(\d{1,12})(?!\d)", re.IGNORECASE)
_UNFINISHED = re.compile(r"\..*|tmp[-_.].*|.*[-_.](?:tmp|part|partial|incomplete)", re.IGNORECASE)
_EPOCH = "epoch"
_DEEPEST = 6  # folders below an output that are looked into: Lightning's are three below


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that is whole, as far as can be seen.

    Attributes:
        number: by which it is newer than others, an epoch where its name has nothing else; None of one without any.
        step: of the training, None where the name does not say it.
    """

    path: Path
    number: int | None
    step: int | None = None


def newest_checkpoint(folders: Iterable[Path]) -> int | None:
    """The highest step, or epoch, of the whole checkpoints below some folders; None without any."""
    found = find_checkpoint(folders)
    return None if found is None else found.number


def find_checkpoint(folders: Iterable[Path]) -> SavedCheckpoint | None:
    """The whole checkpoint below some folders whose number is the highest; None without any.

    Where there are checkpoints of ours, whole or not, others beside them are not what the next attempt reads.
    """
    numbered = [entry for folder in folders for entry in _numbered_entries(folder, _DEEPEST)]
    own = [entry for entry in numbered if _OWN.fullmatch(entry.name)]
    checkpoints = map(_own_checkpoint, own) if own else map(_other_checkpoint, numbered)
    return max(filter(None, checkpoints), key=_age_order, default=None)


def find_saved_state(folder: Path) -> SavedCheckpoint | None:
    """The newest checkpoint below a folder, or where no name has a number, the file that was written last.

    A file is what it holds itself.
    """
    if any(True for _ in _numbered_entries(folder, _DEEPEST)):
        return find_checkpoint([folder])
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    paths += [folder] if folder.is_file() else []
    files = [SavedCheckpoint(path, None) for path in paths if not _UNFINISHED.fullmatch(path.name)]
    return max(files, key=_age_order, default=None)


def _age_order(saved: SavedCheckpoint) -> tuple[int, int]:
    try:
        return saved.number or 0, saved.path.stat().st_mtime_ns
    except OSError:  # it has just been removed
        return saved.number or 0, 0


def _numbered_entries(folder: Path, depth: int) -> Iterator[Path]:
    """What has a number in its name, at any place but inside of another such one."""
    entries: list[os.DirEntry[str]] = []
    with suppress(OSError), os.scandir(folder) as scanned:
        entries = [entry for entry in scanned if not _UNFINISHED.fullmatch(entry.name)]
    for entry in entries:
        if _OTHERS.search(entry.name):
            yield Path(entry)
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from _numbered_entries(Path(entry), depth - 1)


def _own_checkpoint(folder: Path) -> SavedCheckpoint | None:
    """One of ours, if all that its manifest names is there in its whole size."""
    manifest = read_json_file(folder / "manifest.json")
    try:
        sizes = {name: int(said["bytes"]) for name, said in manifest["files"].items()}
        is_whole = all(Path(n).name == n and (folder / n).stat().st_size == size for n, size in sizes.items())
        step = int(manifest["step"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return SavedCheckpoint(folder, step, step) if is_whole else None


def _other_checkpoint(entry: Path) -> SavedCheckpoint | None:
    """One of others, if something lies there; an epoch counts where nothing else is counted."""
    try:
        has_content = any(entry.iterdir()) if entry.is_dir() else entry.stat().st_size > 0
    except OSError:
        return None
    counted = [(what.lower(), int(number)) for what, number in _OTHERS.findall(entry.name)]
    steps = [number for what, number in counted if what != _EPOCH]
    number = (steps or [number for _, number in counted])[-1]
    return SavedCheckpoint(entry, number, number if steps else None) if has_content else None
