"""When all ranks stop, when one of them was asked to: agreed beside the training, at no cost to a step."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Final, Self

from shared.distributed import ControlError, Refusal, World
from shared.distributed.liveness import note_progress, note_step
from shared.distributed.startup import heed_no_more

_STEPS_AHEAD: Final = 1
"""Steps that a rank may still make when it hears of it, before it has to know the last one.

A pass of a validation that the ranks compute together counts as one."""

_ENDED: Final = "the training has ended"


class StoppedError(Exception):
    """The training was stopped and is saved; raised where a framework's loop knows no other end, caught around it."""


class StopAgreement:
    """Lets all ranks stop after the same step; a context manager around the training, in all of them.

    A thread of each rank waits at the control plane until some rank is asked to stop. Each then says up to which step
    it goes on without knowing more, and the latest of these is the last step. No rank can have gone further, and nobody
    talks about it before.

    Where rank 0 trains `alone`, with processes that serve it, only it stops, and hears what they are asked.
    """

    def __init__(self, world: World, *, alone: bool = False) -> None:
        self._world = None if world.launch.alone else world
        self._alone = alone
        self._channel: World | None = None
        self._known = threading.Condition()
        self._asked = False
        self._step = 0  # of those that were asked about
        self._pause: int | None = None  # the step at which this rank waits for the last one
        self._last: int | None = None
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        if self._world is not None and self._channel is None:
            self._channel = self._world.open_channel("stop")
            threading.Thread(target=self._watch, args=(self._channel,), name="stop", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            channel.close_channel()

    def ask(self) -> None:
        """Ask all ranks to stop soon; a signal handler may call this, wherever the process is."""
        if not self._asked:
            self._asked = True
            if self._world is not None and not self._alone:
                threading.Thread(target=_announce_stop, args=(self._world,), daemon=True).start()

    def is_asked(self) -> bool:
        """Say whether some rank was asked to stop, as far as this one has heard: others may hear of it later."""
        note_progress()
        return self._asked or self._pause is not None

    def is_last(self) -> bool:
        """Say whether to stop after this step, called for each; the same on all ranks.

        Raises:
            ControlError: another rank has died meanwhile.
        """
        note_step()
        if self._world is None or self._alone:
            return self._asked
        with self._known:
            self._step += 1
            if self._pause is None or self._step < self._pause:
                return False
            self._known.wait_for(lambda: self._last is not None or self._error is not None)
            if self._last is None:
                raise self._error or AssertionError
            return self._step >= self._last

    def _watch(self, channel: World) -> None:
        try:
            channel.wait_for_announcement("stop")
            if self._alone:
                self._asked = True
                return
            with self._known:
                self._pause = self._step + _STEPS_AHEAD
            last = int(channel.max(self._pause, "the last step"))
            with self._known:
                self._last = last
                self._known.notify_all()
        except (ControlError, Refusal, OSError) as error:  # the end of the training, or of another rank
            with self._known:
                self._error = error
                self._known.notify_all()


def serve_training(world: World) -> bool:
    """Serve rank 0, which trains alone, until it has ended; False if this process was asked to stop before.

    What it is asked goes to rank 0, which still needs this process to save: where a node is taken away, SIGTERM may
    reach a server and no worker. Rank 0 calls `end_service`.
    """
    asked = threading.Event()

    def pass_on(*_: object) -> None:
        if not asked.is_set():
            asked.set()
            threading.Thread(target=_announce_stop, args=(world,), daemon=True).start()

    signal.signal(signal.SIGTERM, pass_on)
    try:
        world.wait_for_announcement(_ENDED)
    finally:
        heed_no_more()  # all that is left to do is to leave
    return not asked.is_set()


def end_service(world: World) -> None:
    """Let those go that `serve_training`."""
    world.announce(_ENDED)


def _announce_stop(world: World) -> None:
    try:
        channel = world.open_channel(f"stop asked of {world.launch.role}")
        channel.announce("stop")
        channel.close_channel()
    except (ControlError, Refusal, OSError):
        pass  # the world has ended
