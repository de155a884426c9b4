"""Copies of what a checkpoint is to hold, in memory of the host, so that the training may go on while it is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from shared.checkpoint.pieces import ShardPart
from shared.tensors import is_torch


@dataclass(frozen=True, slots=True)
class BufferForm:
    """What a buffer is like: its shape, its type (of torch or of NumPy), and whether it is of page-locked memory."""

    shape: tuple[int, ...]
    dtype: Any
    locked: bool = False

    @classmethod
    def of_copy(cls, values: Any) -> BufferForm:
        """Give the form of a copy of a tensor or an array: a GPU copies into page-locked memory alone by itself."""
        return cls(tuple(values.shape), values.dtype, is_torch(values) and values.is_cuda)

    def allocate(self) -> Any:
        """Ask the system for a buffer, of torch or of NumPy; its content is any."""
        if type(self.dtype).__module__ == "torch":
            import torch

            return torch.empty(self.shape, dtype=self.dtype, pin_memory=self.locked)
        import numpy as np

        return np.empty(self.shape, self.dtype)


class StagingBuffers:
    """Memory for one checkpoint, used again for each: asking the system for it anew would take longer than copying.

    What lies on a GPU is copied into page-locked memory by the GPU itself, behind what it has to do before.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[BufferForm, Any]] = {}
        self._copied: list[Any] = []

    def stage(self, parts: Iterable[ShardPart]) -> list[ShardPart]:
        """Copy pieces; what was staged before is overwritten."""
        self._copied.clear()
        staged, kept, devices = [], {}, set()
        for part in parts:
            kept[part.name] = form, copy = self._copy(part)
            staged.append(replace(part, values=copy))
            if form.locked:
                devices.add(part.values.device)
        self._buffers = kept
        self._copied = [_copied_on(device) for device in devices]
        return staged

    def wait_until_copied(self) -> None:
        """Wait until the GPU has copied what was staged; whoever reads it calls this first."""
        for event in self._copied:
            event.synchronize()

    def _copy(self, part: ShardPart) -> tuple[BufferForm, Any]:
        import numpy as np

        values = part.values.detach() if is_torch(part.values) else np.asarray(part.values)
        form = BufferForm.of_copy(values)
        known, buffer = self._buffers.get(part.name, (form, None))
        if buffer is None or known != form:
            buffer = form.allocate()
        if is_torch(values):
            return form, buffer.copy_(values, non_blocking=True)
        np.copyto(buffer, values)
        return form, buffer


def _copied_on(device: Any) -> Any:
    """Mark what a device's stream has to do up to here."""
    import torch

    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
