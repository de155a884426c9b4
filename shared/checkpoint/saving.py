"""Saving behind the training: what is to be kept is copied, and a thread of each rank writes it and meets the others'.

A save in which any process dies at any moment leaves what was there before. Every file has its final name from the
start, and in it the attempt that wrote it: another start of the job, or another save of it, gives other names, so that
nobody writes to a file that a manifest names. The manifest is written by rank 0 when all ranks have said that their
files are in storage, and what is older is removed after that. A manifest that is not whole is no JSON; one that is seen
too late, or that a rank of an earlier start has left, names files whose hashes it has, or none that are there.

A save that fails because the storage is full, or ill for a while, ends no training: the ranks agree that it has failed,
what is there of it is removed, and the next save that is due tries again. On a full disk the oldest checkpoint is
removed, and the save is repeated once.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

from shared.checkpoint.files import (
    KeepRule,
    begin_folder,
    commit_checkpoint,
    newest_attempt,
    rank_name,
    remove_attempt,
    remove_oldest,
    step_folder,
)
from shared.checkpoint.tensor_file import FileSeal, ShardPart, write_tensor_file
from shared.distributed import Refusal, World
from shared.distributed.errors import print_line
from shared.storage import is_full, may_pass, retry_transient, write_bytes
from shared.tensors import is_torch

_CHANNEL: Final = "checkpoints"


@dataclass(frozen=True, slots=True)
class _Save:
    """What one rank has to write: its pieces, JSON that all have in common, and JSON that it has alone."""

    step: int
    parts: list[ShardPart]
    state: str
    own: bytes | None


class CheckpointEngine:
    """Saves one training, a checkpoint at a time; every rank has one and calls the same methods at the same steps.

    A `world` of None is one process that saves alone, whatever else there is. What goes wrong in the thread is raised
    by the next call here, but for a save that storage did not take: that is said, and counted.

    Attributes:
        failed_saves: how many storage did not take.
        failure: why the last one was not; None if it is a checkpoint, or is still being written.
        saved_step: of the newest checkpoint of this start; None if there is none yet.
        stall_seconds: time that the training stood still for the last save.
        writing_seconds: time in which the last one that is finished was written.
    """

    def __init__(self, world: World | None, folder: Path, timeout: timedelta, keep: KeepRule | None = None) -> None:
        self._world, self._folder, self._timeout, self._keep = world, folder, timeout, keep or KeepRule()
        self._channel: World | None = None
        self._start = secrets.token_hex(4) if world is None else world.start_id[:8]
        self._saves = 0
        self._found: str | None = None  # which attempt had written last when this start committed for the first time
        self._buffers = StagingBuffers()
        self.failed_saves, self.saved_step = 0, cast("int | None", None)
        self.failure: str | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self.stall_seconds = self.writing_seconds = 0.0

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
        save = _Save(
            step,
            self._buffers.stage(parts),
            json.dumps(state, allow_nan=False),
            None if own is None else json.dumps(own, allow_nan=False).encode(),
        )
        if self._world is not None and self._channel is None:
            self._channel = self._world.open_channel(_CHANNEL)
        # A daemon: a process that fails ends without waiting for its storage.
        self._thread = threading.Thread(target=self._run, args=(save,), name="checkpoint", daemon=True)
        self._thread.start()
        self.stall_seconds = time.perf_counter() - began

    def check(self) -> None:
        """Raise what has gone wrong in a save, if anything; takes no time."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Wait until what was saved is a checkpoint, or its `failure` is known.

        Raises:
            Refusal, OSError, ControlError: it is none, and none will be.
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

    def _run(self, save: _Save) -> None:
        began = time.perf_counter()
        try:
            self._write(save)
        except BaseException as error:  # noqa: BLE001  # raised where the training next looks
            self._error = error
        self.writing_seconds = time.perf_counter() - began

    def _write(self, save: _Save) -> None:
        self._buffers.wait_until_copied()
        lack = self._try_once(save)
        if lack is not None and lack[1] and self._make_room(save.step):
            lack = self._try_once(save)
        if lack is None:
            self.saved_step, self.failure = save.step, None
            return
        self.failed_saves += 1
        self.failure = f"{self._folder} did not take it ({lack[0]})"
        self._say(f"warning: the checkpoint of step {save.step} was not saved: {self.failure}; training goes on")

    def _try_once(self, save: _Save) -> list[Any] | None:
        """Write and commit; `lack_of` where that has failed, on all ranks alike, with nothing left of it; else None."""
        self._saves += 1
        rank, attempt = 0 if self._world is None else self._world.rank, f"{self._start}x{self._saves}"
        path, mine, lack = step_folder(self._folder, save.step), {}, None
        try:
            begin_folder(self._folder, save.step)
            mine = write_rank_files(path, rank, attempt, save.parts, save.own)
        except OSError as error:
            lack = _lack_of(error)
            remove_attempt(path, attempt, rank)
        seals = {name: [seal.size, seal.sha256] for name, seal in mine.items()}
        said = [0 if self._channel is None else self._channel.node_rank, seals, lack]
        if self._channel is None:
            outcome = self._conclude(save, attempt, [said])
        else:
            collected = self._channel.collect(said, f"files of step {save.step}", self._timeout)
            # Rank 0 may be stopped, or its storage may hang; the longest that a sound commit takes is to see all files.
            limit = self._timeout + timedelta(seconds=VISIBLE_SECONDS)
            outcome = self._channel.once(
                lambda: self._conclude(save, attempt, collected or []),
                name=f"commit step {save.step}", scope="job", timeout=limit,
            )  # fmt: skip
        if outcome is not None:
            remove_attempt(path, attempt, rank)
        return outcome

    def _conclude(self, save: _Save, attempt: str, collected: list[Any]) -> list[Any] | None:
        """Commit what the ranks have written, on rank 0; `lack_of` where that cannot be."""
        lacks = [lack for _, _, lack in collected if lack is not None]
        if not lacks:
            try:
                files = [(node, documents) for node, documents, _ in collected]
                self._commit(save, attempt, wait_until_visible(self._folder, save.step, files))
            except OSError as error:
                lacks = [_lack_of(error)]
            else:
                return None
        remove_attempt(step_folder(self._folder, save.step), attempt)
        return max(lacks, key=lambda lack: lack[1])

    def _make_room(self, step: int) -> bool:
        """Let rank 0 remove the oldest checkpoint that may go; whether it has."""

        def remove() -> bool:
            return remove_oldest(self._folder, step, self._keep.every)

        if self._channel is None:
            removed = remove()
        else:
            limit = self._channel.solo_timeout
            removed = self._channel.once(remove, name=f"room for step {step}", scope="job", timeout=limit)
        if removed:
            self._say(f"warning: {self._folder} is full: the oldest checkpoint was removed to save step {step}")
        return removed

    def _say(self, text: str) -> None:
        if self._world is None or self._world.is_main:
            print_line(text)

    def _commit(self, save: _Save, attempt: str, files: Mapping[str, FileSeal]) -> None:
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
        commit_checkpoint(self._folder, save.step, attempt, save.state, files, self._keep)


def save_checkpoint(folder: Path, step: int, tensors: Mapping[str, Any], state: object, keep: int = 2) -> Path:
    """Write the checkpoint of a step and wait for it; one process calls this, and there are no others. Its folder.

    `tensors`, by name, are of torch (on any device, none sharing memory with another) or NumPy arrays.

    Raises:
        OSError: storage does not take it; nothing is left of it.
    """
    attempt, path = secrets.token_hex(4), begin_folder(folder, step)
    buffers = StagingBuffers()
    parts = buffers.stage(ShardPart.whole(name, values) for name, values in tensors.items())
    buffers.wait_until_copied()
    try:
        files = write_rank_files(path, 0, attempt, parts, None)
        return commit_checkpoint(folder, step, attempt, json.dumps(state, allow_nan=False), files, KeepRule(keep))
    except OSError:
        remove_attempt(path, attempt)
        raise


def _lack_of(error: OSError) -> list[Any]:
    """What storage has said, and whether it is full.

    Raises:
        OSError: this one, if it does not pass by itself.
    """
    if not may_pass(error):
        raise error
    return [error.strerror or str(error), is_full(error)]


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


class StagingBuffers:
    """Memory for one checkpoint, used again for each: asking the system for it anew would take longer than copying.

    What lies on a GPU is copied into page-locked memory by the GPU itself, behind what it has to do before.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Any] = {}
        self._copied: list[Any] = []

    def stage(self, parts: Iterable[ShardPart]) -> list[ShardPart]:
        """Copy pieces; what was staged before is overwritten."""
        self._copied.clear()
        staged, kept, devices = [], {}, set()
        for part in parts:
            kept[part.name] = copy = self._copy(part)
            staged.append(replace(part, values=copy))
            if is_torch(part.values) and part.values.is_cuda:
                devices.add(part.values.device)
        self._buffers = kept
        self._copied = [_copied_on(device) for device in devices]
        return staged

    def wait_until_copied(self) -> None:
        """Wait until the GPU has copied what was staged; whoever reads it calls this first."""
        for event in self._copied:
            event.synchronize()

    def _copy(self, part: ShardPart) -> Any:
        """Copy a piece; a GPU copies only into page-locked memory by itself."""
        import numpy as np

        values = part.values.detach() if is_torch(part.values) else np.asarray(part.values)
        buffer = self._buffers.get(part.name)
        if buffer is None or (buffer.shape, buffer.dtype) != (values.shape, values.dtype):
            buffer = _allocate(values)
        if is_torch(values):
            return buffer.copy_(values, non_blocking=True)
        np.copyto(buffer, values)
        return buffer


def _allocate(values: Any) -> Any:
    """Ask the system for a buffer like some values; its content is any."""
    if is_torch(values):
        import torch

        return torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
    import numpy as np

    return np.empty(values.shape, values.dtype)


def _copied_on(device: Any) -> Any:
    """Mark what a device's stream has to do up to here."""
    import torch

    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
