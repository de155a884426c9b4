"""Copies of what a checkpoint is to hold, in memory of the host, so that the training may go on while it is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shared.checkpoint.pieces import ShardPart
from shared.tensors import is_torch


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
