"""What can be seen from outside of the checkpoints that a step has written: the step of the newest one.

Ours are folders ``step-00000120`` with a manifest, which is written last. Of others the name is what is known:
``checkpoint-120`` (transformers), ``epoch=3-step=120.ckpt`` (Lightning), ``global_step120`` (DeepSpeed),
``iter_0000120`` (Megatron), ``model_epoch_3.pt``. A file without such a number says nothing: each attempt may have
written it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from allranks.local.record_shapes import read_json_file

_OWN = re.compile(r"step-\d{8,}")
_OTHERS = re.compile(r"(?:step|checkpoint|ckpt|epoch|iter)s?[-_=]?0*(\d{1,12})(?!\d)", re.IGNORECASE)


def newest_checkpoint(folders: Iterable[Path]) -> int | None:
    """The highest step, or epoch, of the whole checkpoints in some folders; None without any."""
    return max((number for folder in folders for number in _numbers(folder)), default=None)


def _numbers(folder: Path) -> Iterator[int]:
    entries: list[Path] = []
    with suppress(OSError):
        entries = list(folder.iterdir())
    for entry in entries:
        number = _own_step(entry) if _OWN.fullmatch(entry.name) else _named_step(entry)
        if number is not None:
            yield number


def _own_step(folder: Path) -> int | None:
    """The step of a checkpoint of ours, if all that its manifest names is there in its whole size."""
    manifest = read_json_file(folder / "manifest.json")
    try:
        sizes = {name: int(said["bytes"]) for name, said in manifest["files"].items()}
        is_whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return int(manifest["step"]) if is_whole else None
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _named_step(entry: Path) -> int | None:
    """The last number in a name that says what it counts, if something lies there."""
    found = _OTHERS.findall(entry.name)
    try:
        has_content = any(entry.iterdir()) if entry.is_dir() else entry.stat().st_size > 0
    except OSError:
        return None
    return int(found[-1]) if found and has_content else None
