"""Saving behind the training: what is to be kept is copied, and a thread of each rank writes it and meets the others'.

A save in which any process dies at any moment leaves what was there before. Every file has its final name from the
start, and in it the attempt that wrote it: another start of the job, or another save of it, gives other names, so that
nobody writes to a file that a manifest names. The manifest is written by rank 0 when all ranks have said that their
files are in storage, and what is older is removed after that. A manifest that is not whole is no JSON; one that is seen
too late, or that a rank of an earlier start has left, names files whose hashes it has, or none that are there.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from shared.checkpoint.files import KeepRule, begin_folder, commit_checkpoint, newest_attempt, rank_name
from shared.checkpoint.pieces import ShardPart
from shared.checkpoint.seal import FileSeal
from shared.checkpoint.staging import StagingBuffers
from shared.checkpoint.tensor_file import write_tensor_file
from shared.distributed import Refusal, World
from shared.storage import retry_transient, write_bytes

VISIBLE_SECONDS: Final = 30.0
"""How long rank 0 waits until it sees what the ranks of other nodes have written: listings of mounted stores lag."""
_CHANNEL: Final = "checkpoints"


@dataclass(frozen=True, slots=True)
class SaveTimes:
    """Of the last save: how long the training stood still for it, and how long it was written, in seconds."""

    stall: float
    writing: float


@dataclass(frozen=True, slots=True)
class _Save:
    """What one rank has to write: its pieces, JSON that all have in common, and JSON that it has alone."""

    step: int
    attempt: str
    parts: list[ShardPart]
    state: str
    own: bytes | None


class CheckpointEngine:
    """Saves one training, a checkpoint at a time; every rank has one and calls the same methods at the same steps.

    A `world` of None is one process that saves alone, whatever else there is. What goes wrong in the thread is raised
    by the next call here.
    """

    def __init__(self, world: World | None, folder: Path, timeout: timedelta, keep: KeepRule | None = None) -> None:
        self._world, self._folder, self._timeout, self._keep = world, folder, timeout, keep or KeepRule()
        self._channel: World | None = None
        self._start = secrets.token_hex(4) if world is None else world.start_id[:8]
        self._saves = 0
        self._found: str | None = None  # which attempt had written last when this start committed for the first time
        self._buffers = StagingBuffers()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stall = self._writing = 0.0

    def reserve(self, like: Iterable[Any]) -> None:
        """Begin to get the memory that copies of such tensors or arrays need; the first save then waits for none."""
        self._buffers.reserve(like)

    def save(self, step: int, parts: Iterable[ShardPart], state: object, own: object | None = None) -> None:
        """Begin to save a step: when this returns, what is given may change.

        Args:
            step: optimizer steps done.
            parts: what this rank answers for; no element of a tensor is among the parts of two ranks.
            state: JSON that all ranks have in common; that of rank 0 is written.
            own: JSON that this rank alone has; None for nothing.

        Raises:
            Refusal, OSError, ControlError: the save before this one failed.
        """
        began = time.perf_counter()
        self.wait()
        self._saves += 1
        save = _Save(
            step,
            f"{self._start}x{self._saves}",
            self._buffers.stage(parts),
            json.dumps(state, allow_nan=False),
            None if own is None else json.dumps(own, allow_nan=False).encode(),
        )
        if self._world is not None and self._channel is None:
            self._channel = self._world.open_channel(_CHANNEL)
        # A daemon: a process that fails ends without waiting for its storage.
        self._thread = threading.Thread(target=self._run, args=(save,), name="checkpoint", daemon=True)
        self._thread.start()
        self._stall = time.perf_counter() - began

    def check(self) -> None:
        """Raise what has gone wrong in a save, if anything; takes no time."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Wait until what was saved is a checkpoint.

        Raises:
            Refusal, OSError, ControlError: it is none.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def close(self) -> None:
        """Wait, and end what the engine has with the other ranks."""
        self.wait()
        if self._channel is not None:
            self._channel.close_channel()
            self._channel = None

    @property
    def times(self) -> SaveTimes:
        """How long the last save took; the writing of one that is under way is not in it."""
        return SaveTimes(self._stall, self._writing)

    def _run(self, save: _Save) -> None:
        began = time.perf_counter()
        try:
            self._write(save)
        except BaseException as error:  # noqa: BLE001  # raised where the training next looks
            self._error = error
        self._writing = time.perf_counter() - began

    def _write(self, save: _Save) -> None:
        self._buffers.wait_until_copied()
        rank = 0 if self._world is None else self._world.rank
        mine = write_rank_files(begin_folder(self._folder, save.step), rank, save.attempt, save.parts, save.own)
        if self._channel is None:
            self._commit(save, mine)
            return
        node = self._channel.node_rank
        said = [node, {name: [seal.size, seal.sha256] for name, seal in mine.items()}]
        collected = self._channel.collect(said, f"files of step {save.step}", self._timeout)

        def commit() -> None:
            assert collected is not None  # noqa: S101  # this is rank 0
            self._commit(save, _wait_until_visible(self._folder, save.step, collected))

        # Rank 0 may be stopped, or its storage may hang; the longest that a sound commit takes is to see all files.
        limit = self._timeout + timedelta(seconds=VISIBLE_SECONDS)
        self._channel.once(commit, name=f"commit step {save.step}", scope="job", timeout=limit)

    def _commit(self, save: _Save, files: Mapping[str, FileSeal]) -> None:
        """Make a checkpoint of the files.

        Raises:
            Refusal: a later start has begun to save into the folder; each would remove the files of the other.
        """
        last = newest_attempt(self._folder)
        if self._found is None:
            self._found = last
        elif last not in ("", self._found) and not last.startswith(f"{self._start}x"):
            raise Refusal(
                f"Another run that was started later saves into {self._folder} too, and each would remove checkpoints "
                "of the other. Give each run a checkpoints folder of its own; another run's is given as resume_from."
            )
        commit_checkpoint(self._folder, save.step, save.attempt, save.state, files, self._keep)


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


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Any], state: object, keep: int = 2) -> Path:
    """Write the checkpoint of a step and wait for it; one process calls this, and there are no others. Its folder.

    `tensors`, by name, are of torch (on any device, none sharing memory with another) or NumPy arrays.
    """
    attempt, path = secrets.token_hex(4), begin_folder(folder, step)
    buffers = StagingBuffers()
    parts = buffers.stage(ShardPart.whole(name, values) for name, values in tensors.items())
    buffers.wait_until_copied()
    files = write_rank_files(path, 0, attempt, parts, None)
    return commit_checkpoint(folder, step, attempt, json.dumps(state, allow_nan=False), files, KeepRule(keep))


def _wait_until_visible(folder: Path, step: int, collected: list[Any]) -> dict[str, FileSeal]:
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
