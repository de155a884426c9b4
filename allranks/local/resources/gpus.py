"""What the NVIDIA GPUs of this machine do, as nvidia-smi tells it: started at one look, read at the next."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

_QUERY = ("--query-gpu=index,uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
_MEBIBYTE = 1 << 20
_LONGEST = 30.0  # seconds that an answer may take; a driver that hangs is not asked again


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU: the share of the last moments in which it computed, and its memory in use, whoever uses it."""

    index: str
    uuid: str
    use: float
    memory_bytes: int

    def is_one_of(self, visible: str | None) -> bool:
        """Whether CUDA_VISIBLE_DEVICES names it; None as its value names all."""
        names = None if visible is None else [name.strip() for name in visible.split(",")]
        return names is None or self.index in names or any(name and self.uuid.startswith(name) for name in names)


class GpuProbe:
    """Asks again and again, and never waits: the engine has one loop.

    Attributes:
        states: the last answer; ``at`` is when it came.
    """

    def __init__(self) -> None:
        self.states: Sequence[GpuState] = ()
        self.at = 0.0
        self._asked = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._is_silent = False

    @cached_property
    def _program(self) -> str | None:
        return shutil.which("nvidia-smi")

    def look(self, now: float) -> None:
        """Take an answer that has come, and ask for the next one."""
        if self._program is None or self._is_silent:
            return
        if self._process is not None and not self._take_answer(self._process, now):
            return
        with suppress(OSError):
            self._asked = now
            self._process = subprocess.Popen(
                [self._program, *_QUERY],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def _take_answer(self, process: subprocess.Popen[str], now: float) -> bool:
        """Whether the next question may be asked."""
        if process.poll() is None:
            if now - self._asked > _LONGEST:
                self.close()
                self._is_silent = True
            return False
        assert process.stdout is not None  # noqa: S101 it is a pipe
        with process.stdout as answer:
            self.states, self.at, self._process = parse_gpu_states(answer.read()), now, None
        self._is_silent = not self.states  # no driver, or GPUs that do not tell
        return not self._is_silent

    def close(self) -> None:
        """End what was asked last."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def parse_gpu_states(answer: str) -> list[GpuState]:
    """The GPUs in lines such as ``0, GPU-6c0d…, 35, 1024``; those are left out of which it says ``[N/A]``."""
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]
    return [
        GpuState(row[0], row[1], int(row[2]) / 100, int(row[3]) * _MEBIBYTE)
        for row in rows
        if len(row) == 4 and row[2].isdigit() and row[3].isdigit()
    ]
