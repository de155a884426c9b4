"""Processes that read and change pictures: threads of one interpreter wait for each other where Python does the work.

A process is asked for a batch on its standard input and gives it on its standard output, as plain bytes behind a line
of JSON. It ends when its input does, so none outlives its trainer, however that dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shared.data import Dataset, Split
from shared.distributed import Refusal
from shared.settings.augmentation import AugmentationSettings
from shared.training.augmentation.batches import BatchAugmentation, BatchPlace
from shared.training.core.batch_plan import BatchPlan

NamedArrays = Mapping[str, npt.NDArray[Any]]
PictureReader = Callable[[BatchPlace], NamedArrays]
"""Gives `x` and `y` of the rank's rows of a batch."""


def picture_reader(
    augmentation: BatchAugmentation, split: Split, plan: BatchPlan, rank: int, workers: int
) -> PictureReader:
    """Choose who changes pictures: as many processes as workers, from two on; else the thread that asks.

    A split that is streamed is read by threads alone: its files are read once for each rank.
    """
    if workers > 1 and type(split) is Split:
        return AugmentationPool(augmentation, split, rank, plan.world_size, workers).read
    return lambda place: augmentation.read(split, place, rank, plan.world_size)


class AugmentationPool:
    """So many processes, each of which works on one batch at a time; ask from as many threads."""

    def __init__(
        self, augmentation: BatchAugmentation, split: Split, rank: int, world_size: int, processes: int
    ) -> None:
        setup = {
            "settings": asdict(augmentation.settings),
            "seed": augmentation.seed,
            "classes": augmentation.classes,
            "fill": augmentation.fill.tolist(),
            "dtype": augmentation.fill.dtype.name,
            "folder": str(split.folder.resolve()),
            "split": split.name,
            "rank": rank,
            "world_size": world_size,
        }
        started = [_start(setup) for _ in range(processes)]
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        for process in started:
            self._idle.put(process)
        self.close = weakref.finalize(self, _end, started)

    def read(self, place: BatchPlace) -> NamedArrays:
        """Give `x` and `y` of the rank's rows of a batch; see ``BatchAugmentation.read``.

        Raises:
            Refusal: if a file of the dataset cannot be used.
            RuntimeError: if the process has died; what it died of is in the log.
        """
        process = self._idle.get()
        try:
            assert process.stdin is not None  # noqa: S101
            assert process.stdout is not None  # noqa: S101
            asked = {"epoch": place.epoch, "number": place.number, "rows": len(place.rows)}
            process.stdin.write(json.dumps(asked).encode() + b"\n" + place.rows.astype(np.int64).tobytes())
            process.stdin.flush()
            return _answer(process.stdout)
        except (OSError, EOFError) as error:
            raise RuntimeError(
                f"a process that changes pictures has ended with exit code {process.wait()}; -9 may mean that the "
                "memory is full. With loader_workers 1 a thread does its work."
            ) from error
        finally:
            self._idle.put(process)


def _start(setup: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    )
    assert process.stdin is not None  # noqa: S101
    process.stdin.write(json.dumps(setup).encode() + b"\n")
    process.stdin.flush()
    return process


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()  # it holds nothing that could be lost
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what it was not given any more
                if pipe is not None:
                    pipe.close()
        process.wait()


def _answer(stream: IO[bytes]) -> NamedArrays:
    header = json.loads(stream.readline() or b'{"ended": true}')
    if "ended" in header:
        raise EOFError
    if "refusal" in header:
        raise Refusal(header["refusal"])
    return {name: _received(stream, dtype, shape) for name, (dtype, shape) in header.items()}


def _received(stream: IO[bytes], dtype: str, shape: list[int]) -> npt.NDArray[Any]:
    array = np.empty(shape, dtype)
    rest = memoryview(array.data).cast("B")
    while len(rest):
        count = stream.readinto(rest)  # type: ignore[attr-defined]  # of a BufferedReader
        if not count:
            raise EOFError
        rest = rest[count:]
    return array


def main() -> None:
    """Answer until the input ends. Signals for the whole step are the trainer's to act upon."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints goes to the log
    setup = json.loads(sys.stdin.buffer.readline())
    fill = np.array(setup["fill"], setup["dtype"])
    settings = AugmentationSettings(**setup["settings"])
    augmentation = BatchAugmentation(settings, setup["seed"], setup["classes"], fill)
    split = Dataset.open(setup["folder"]).split(setup["split"])
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        rows = np.frombuffer(sys.stdin.buffer.read(8 * asked["rows"]), np.int64)
        try:
            place = BatchPlace(asked["epoch"], asked["number"], rows)
            arrays = augmentation.read(split, place, setup["rank"], setup["world_size"])
        except Refusal as refusal:  # the trainer says it
            _send(answers, {"refusal": str(refusal)}, [])
        else:
            ordered = [np.ascontiguousarray(array) for array in arrays.values()]
            header = {name: (one.dtype.name, one.shape) for name, one in zip(arrays, ordered, strict=True)}
            _send(answers, header, ordered)


def _send(stream: IO[bytes], header: Mapping[str, Any], arrays: list[npt.NDArray[Any]]) -> None:
    stream.write(json.dumps(header).encode() + b"\n")
    for array in arrays:
        stream.write(array.data.cast("B"))
    stream.flush()


if __name__ == "__main__":
    main()
