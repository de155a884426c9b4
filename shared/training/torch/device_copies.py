"""Batches on their way to a GPU: copied on a stream of their own, one ahead of the computing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from shared.distributed.liveness import note_progress
from shared.training.core.time_split import Batch, DataTimer

Started = TypeVar("Started")

Tensors = tuple[torch.Tensor, ...]
_Copies = tuple[Tensors, torch.cuda.Event]


def copy_ahead(batches: Iterator[Tensors], device: torch.device) -> Iterator[Tensors]:
    """Copy batches to a GPU while it computes on those before, and give them in their order.

    From page-locked memory the copies run beside the computing; from other memory the process waits for them, as it
    does without this. The memory of the host is torch's: it is not used again before the copy is done.
    """
    stream = torch.cuda.Stream(device)

    def start(batch: Tensors) -> _Copies:
        with torch.cuda.stream(stream):
            copies = tuple(tensor.to(device, non_blocking=True) for tensor in batch)
            return copies, stream.record_event()

    def finish(started: _Copies) -> Tensors:
        copies, copied = started
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)  # the GPU waits, and this process does not
        for tensor in copies:
            tensor.record_stream(computing)  # or the next copy would take its memory while it is still read
        return copies

    return one_ahead(batches, start, finish)


def one_ahead(
    batches: Iterator[Batch], start: Callable[[Batch], Started], finish: Callable[[Started], Batch]
) -> Iterator[Batch]:
    """Finish each batch when the next one is started."""
    started: deque[Started] = deque()
    for batch in batches:
        started.append(start(batch))
        if len(started) > 1:
            yield finish(started.popleft())
    while started:
        yield finish(started.popleft())


def data_timer(device: torch.device) -> DataTimer:
    """Make what times the batches that a device waits for."""
    return GpuDataTimer() if device.type == "cuda" else DataTimer()


class GpuDataTimer(DataTimer):
    """Adds up how long the GPU had nothing to do because the next batch was not there.

    It notes on the stream that computes when the step before was done and when the batch had come. What the GPU has
    passed is read without waiting; the last few are in the next report.
    """

    def __init__(self) -> None:
        super().__init__()
        self._noted: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._free: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def watch(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Hand batches on, and note when each was wanted and when it was there."""
        while True:
            pair = self._free.pop() if self._free else (_timing_event(), _timing_event())
            pair[0].record()
            try:
                batch = next(batches)
            except StopIteration:
                self._free.append(pair)
                return
            pair[1].record()
            self._noted.append(pair)
            self._add_up()
            note_progress()
            yield batch

    def _add_up(self) -> None:
        while self._noted and self._noted[0][1].query():
            wanted, there = pair = self._noted.popleft()
            self.seconds += wanted.elapsed_time(there) / 1e3
            self._free.append(pair)


def _timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
