"""The files that each rank writes for a checkpoint, and whether rank 0 sees them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from shared.checkpoint.files import begin_folder, rank_name
from shared.checkpoint.pieces import ShardPart
from shared.checkpoint.seal import FileSeal
from shared.checkpoint.tensor_file import write_tensor_file
from shared.distributed import Refusal
from shared.storage import retry_transient, write_bytes

VISIBLE_SECONDS: Final = 30.0
"""How long rank 0 waits until it sees what the ranks of other nodes have written: listings of mounted stores lag."""


def write_rank_files(
    path: Path, rank: int, attempt: str, parts: Iterable[ShardPart], own: bytes | None
) -> dict[str, FileSeal]:
    """Write what a rank has for a checkpoint, tensors and JSON, into its folder; name to seal of each file.

    Raises:
        OSError: they cannot be written.
    """
    files, parts = {}, list(parts)
    if parts:
        name = rank_name(rank, attempt, "safetensors")
        files[name] = write_tensor_file(path / name, parts)
    if own is not None:
        name = rank_name(rank, attempt, "json")
        write_bytes(path / name, own)
        files[name] = FileSeal.of_bytes(own)
    return files


def seal_documents(seals: Mapping[str, FileSeal]) -> dict[str, list[Any]]:
    """Give name to size and sha256 of each file, as JSON."""
    return {name: [seal.size, seal.sha256] for name, seal in seals.items()}


def wait_until_visible(folder: Path, step: int, collected: list[Any]) -> dict[str, FileSeal]:
    """Wait until rank 0 sees a file of each node, so that it is known that they share the folder; name to seal of all.

    Raises:
        Refusal: if it does not see one.
    """
    path, until = begin_folder(folder, step), time.monotonic() + VISIBLE_SECONDS
    files: dict[str, FileSeal] = {}
    seen: set[int] = set()
    for node, said in collected:
        seals = {name: FileSeal(*seal) for name, seal in said.items()}
        files |= seals
        for name, seal in list(seals.items())[:1] if node not in seen else ():
            seen.add(node)
            while not _has_size(path / name, seal.size):
                if time.monotonic() > until:
                    raise Refusal(
                        f"Another rank has written {name} into {path}, and rank 0 does not see it. The checkpoints "
                        "folder has to be the same one on all nodes: give an output of mode rw_mount, or a shared "
                        "folder."
                    )
                time.sleep(0.1)
    return files


def _has_size(path: Path, size: int) -> bool:
    try:
        return retry_transient(path.stat).st_size == size
    except FileNotFoundError:
        return False
