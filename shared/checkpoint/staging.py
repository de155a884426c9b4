"""Copies of what a checkpoint is to hold, in memory of the host, so that the training may go on while it is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

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
        staged, devices = [], set()
        for part in parts:
            copy = self._torch_copy(part) if is_torch(part.values) else self._numpy_copy(part)
            staged.append(replace(part, values=copy))
            if is_torch(part.values) and part.values.is_cuda:
                devices.add(part.values.device)
        self._buffers = {part.name: part.values for part in staged}
        self._copied = [_copied_on(device) for device in devices]
        return staged

    def wait_until_copied(self) -> None:
        """Wait until the GPU has copied what was staged; whoever reads it calls this first."""
        for event in self._copied:
            event.synchronize()

    def _torch_copy(self, part: ShardPart) -> Any:
        import torch

        values, buffer = part.values.detach(), cast("Any", self._buffers.get(part.name))
        if not is_torch(buffer) or buffer.shape != values.shape or buffer.dtype != values.dtype:
            buffer = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.is_cuda)
        return buffer.copy_(values, non_blocking=True)

    def _numpy_copy(self, part: ShardPart) -> Any:
        import numpy as np

        values: Any = np.asarray(part.values)
        buffer: Any = self._buffers.get(part.name)
        if buffer is None or is_torch(buffer) or buffer.shape != values.shape or buffer.dtype != values.dtype:
            buffer = np.empty(values.shape, values.dtype)
        np.copyto(buffer, values)
        return buffer


def _copied_on(device: Any) -> Any:
    """Mark what a device's stream has to do up to here."""
    import torch

    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
