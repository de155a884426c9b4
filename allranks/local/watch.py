"""Watches the gangs of a run: which ranks have ended, whose time is up, and whether the guard is alive."""

from __future__ import annotations

import os
import select
import selectors
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from allranks.local import processes
from allranks.local.execution import StepExecution
from allranks.local.gang import RankGang
from allranks.local.guard import ProcessGuard
from allranks.local.stopped_ranks import StoppedRanks
from allranks.local.tracking.endpoint import TrackingEndpoint

_STACK_SECONDS = 0.5  # that hung ranks get to write their stacks
_NODE_SECONDS = 0.2  # within which the ranks of a node that is lost die
LATE_SECONDS = 60.0
"""A rank that still runs so long after another has succeeded is named."""
_SERVER_SECONDS = 2.0  # that parameter servers get to end by themselves after the last worker


def _end_all(ends: Sequence[Callable[[str], None]], marker: str, clean_up: Callable[[], None]) -> None:
    for end in ends:
        end(marker)
    clean_up()


class GangWatch:
    """Waits for what happens to the gangs of a run, and kills those that have to end; more executions may be added.

    The marker is ``NAME=value`` in the environment of all processes of the run. The guard ends everything when this
    process is killed, and then calls ``clean_up``. ``warn`` is told of ranks that do not end. The endpoint is where the
    ranks log to; its server is started when the first of them does.
    """

    def __init__(
        self,
        marker: str,
        executions: Sequence[StepExecution],
        endpoint: TrackingEndpoint,
        clean_up: Callable[[], None] = lambda: None,
        warn: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        ends = dict.fromkeys(execution.step.host.end for execution in executions)
        self.guard = ProcessGuard(marker, partial(_end_all, list(ends), marker, clean_up))
        self._endpoint = endpoint
        self._executions = executions
        self._ranks: dict[int, StepExecution] = {}
        self._stopped = StoppedRanks()
        self._warn = warn
        self._clock = clock
        self._named: set[RankGang] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.guard.pidfd, selectors.EVENT_READ, self._replace_guard)
        self._watched = -1
        self._watch_endpoint()

    def add_signals(self, descriptor: int) -> None:
        """Let what is written to a descriptor end a wait."""
        self._selector.register(descriptor, selectors.EVENT_READ, lambda ready: os.read(ready, 64))

    def add(self, execution: StepExecution) -> None:
        """Watch the ranks of an attempt that has begun."""
        for descriptor in execution.gang.descriptors if execution.gang is not None else ():
            self._ranks[descriptor] = execution
            self._selector.register(descriptor, selectors.EVENT_READ)

    def wait(self, seconds: float) -> list[StepExecution]:
        """Sleep until something happens, at most so long; returns the executions whose last rank has ended."""
        self._watch_endpoint()
        ended: dict[StepExecution, list[int]] = {}
        for key, _ in self._selector.select(seconds):
            if key.fd in self._ranks:
                ended.setdefault(self._ranks[key.fd], []).append(key.fd)
            else:
                key.data(key.fd)
        return [execution for execution, descriptors in ended.items() if self._note_exits(execution, descriptors)]

    def _note_exits(self, execution: StepExecution, descriptors: Sequence[int]) -> bool:
        """Whether the whole gang has ended."""
        gang = execution.gang
        assert gang is not None  # noqa: S101 its ranks are watched
        self._forget(descriptors)
        gang.reap(descriptors)
        if gang.first_failure is not None and not gang.is_stopping:
            self._await_node(gang)
            gang.kill()  # the others' exits come as events of their own
        elif gang.only_servers_left:
            execution.due = time.monotonic() + _SERVER_SECONDS
        if gang.is_finished or gang.has_losses:  # nothing of a lost node is to go on by itself
            self._sweep_orphans(gang)
        return gang.is_finished

    def _await_node(self, gang: RankGang) -> None:
        """Where a rank was killed, see whether its whole node is lost before the others are ended."""
        until = time.monotonic() + _NODE_SECONDS
        while (beside := gang.beside_killed) and (left := until - time.monotonic()) > 0:
            poll = select.poll()
            for descriptor in beside:
                poll.register(descriptor, select.POLLIN)
            ended = [descriptor for descriptor, _ in poll.poll(1000 * left)]
            self._forget(ended)
            gang.reap(ended)

    def enforce_timeouts(self) -> None:
        """End ranks that were stopped, and attempts whose time is up, whose ranks are asked for their stacks first."""
        self._stopped.look([one.gang for one in self._executions if one.gang and one.step.host.is_this_machine])
        now = self._clock()
        for execution in self._executions:
            gang = execution.gang
            if gang is not None and not gang.is_finished:
                self._name_late(execution.step.name, gang, now)
            if gang is None or execution.due is None or execution.due > now:
                continue
            execution.due = None
            if gang.only_servers_left:
                gang.dismiss_servers()
            elif gang.timed_out:
                gang.kill()
            else:
                gang.ask_for_stacks()
                execution.due = now + _STACK_SECONDS

    def _name_late(self, step: str, gang: RankGang, now: float) -> None:
        """Name the ranks that still run long after another has succeeded.

        They are not signalled: a script may take SIGUSR1 as a request to save and to end.
        """
        if not gang.exits or gang.first_failure is not None or gang.only_servers_left or gang in self._named:
            return
        first, late = gang.exits[0], [command.rank for command in gang.running if command.rank is not None]
        if late and now - first.ended >= LATE_SECONDS:
            self._named.add(gang)
            self._warn(
                f"{step}: rank {', '.join(map(str, late))} still runs, {LATE_SECONDS:.0f} s after rank"
                f" {first.command.rank} has ended: `py-spy dump --pid {min(gang.pids)} --subprocesses` shows where."
                " If it waits in the destructor of DistributedDataParallel, delete the model before"
                " destroy_process_group()."
            )

    def kill(self, gang: RankGang) -> None:
        """End a gang now."""
        gang.kill()
        self._forget(gang.descriptors)
        gang.reap(gang.descriptors)
        self._sweep_orphans(gang)

    def close(self) -> None:
        """Whatever happened, also a fault of ours: no process stays behind."""
        for execution in self._executions:
            if execution.gang is not None and not execution.gang.is_finished:
                self.kill(execution.gang)
        processes.end_adopted({self.guard.pid, *self._endpoint.pids})
        self.guard.close()
        self._selector.close()

    def _forget(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            self._selector.unregister(descriptor)
            del self._ranks[descriptor]

    def _sweep_orphans(self, gang: RankGang) -> None:
        running = (one.gang.pids for one in self._executions if one.gang is not None)
        sessions = gang.sessions if gang.is_finished else ()
        processes.sweep_orphans({self.guard.pid}.union(self._endpoint.pids, *running), [gang.marker], sessions)

    def _watch_endpoint(self) -> None:
        """Watch what the endpoint wants to be watched: its socket, or its server."""
        if self._watched != self._endpoint.descriptor:
            self._unwatch_endpoint()
            self._watched = self._endpoint.descriptor
            if self._watched >= 0:
                self._selector.register(self._watched, selectors.EVENT_READ, self._attend_endpoint)

    def _unwatch_endpoint(self) -> None:
        if self._watched >= 0:
            self._selector.unregister(self._watched)
            self._watched = -1

    def _attend_endpoint(self, descriptor: int) -> None:  # noqa: ARG002 it is the one that was registered
        self._unwatch_endpoint()  # first, for it may close it
        self._endpoint.attend()

    def _replace_guard(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        self.guard.replace()
        self._selector.register(self.guard.pidfd, selectors.EVENT_READ, self._replace_guard)
