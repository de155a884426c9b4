"""Looks at what the steps of a run use while they run, from the engine's own loop: no thread, no dependency.

The first look is half a second after the start of an attempt, the next ones two seconds apart, further apart the longer
the step runs (``samples.py``), and rarer where a look takes long, on a machine with thousands of processes. What an
attempt has used to its very end is known of each process that the engine has started; see ``usage.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from allranks.local.execution import StepExecution
from allranks.local.resources.gpus import GpuProbe
from allranks.local.resources.sampler import NEXT_LOOK, AttemptSampler
from allranks.local.resources.samples import SampleFile
from allranks.local.resources.usage import read_process_table

IN_CONTAINERS = "not measured: its nodes are containers"

_SHARE = 100  # a look comes at least so many times later than the one before has taken of a processor


class ResourceWatch:
    """Looks at all steps of a run; what it finds lies in their folders. On a full disk nothing is noted."""

    def __init__(self) -> None:
        self._samplers: dict[StepExecution, AttemptSampler] = {}
        self._gpus = GpuProbe()
        self._not_before = 0.0

    def look(self, executions: Iterable[StepExecution]) -> None:
        """Look at the steps whose next look is due."""
        now = time.monotonic()
        if now < self._not_before:
            return
        running = (one for one in executions if one.gang is not None and one.step.host.is_this_machine)
        due = [sampler for execution in running if (sampler := self._sampler(execution)).due <= now]
        if not due:
            return
        before = time.thread_time()
        self._gpus.look(now)
        table = read_process_table()
        for sampler in due:
            with suppress(OSError):
                sampler.look(table, self._gpus, now)
        self._not_before = now + _SHARE * (time.thread_time() - before)

    def finish(self, execution: StepExecution) -> None:
        """Note what the attempt that has just ended has used in all."""
        if execution.gang is None:
            return
        with suppress(OSError):
            if execution.step.host.is_this_machine:
                self._sampler(execution).finish(self._gpus)
            elif execution.attempts == 1:
                SampleFile(execution.folder.resources).append([{"of": "note", "note": IN_CONTAINERS}])

    def close(self) -> None:
        """The run is over."""
        self._gpus.close()

    def _sampler(self, execution: StepExecution) -> AttemptSampler:
        """That of the attempt that runs; the attempts of a step have one file."""
        assert execution.gang is not None  # noqa: S101 it runs
        known = self._samplers.get(execution)
        if known is None or known.gang is not execution.gang:
            file = known.file if known else SampleFile(execution.folder.resources)
            every = known.every if known else NEXT_LOOK
            known = AttemptSampler(execution, execution.gang, file, every)
            self._samplers[execution] = known
        return known
