"""``World``: what the ranks of a step do together, whatever launched them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

from shared.distributed.assembly import LeaderScope
from shared.distributed.control import Control
from shared.distributed.errors import OnceError, PeerError, Refusal
from shared.distributed.frameworks import FrameworkGroup
from shared.distributed.launch import Launch
from shared.distributed.liveness import note_step, silence_expected
from shared.distributed.wire import MESSAGE_LIMIT, VALUE_LIMIT

_Value = TypeVar("_Value")  # that JSON holds; what comes back has lists for tuples
Timeout: TypeAlias = timedelta | float | None
"""How long to wait: a timedelta, or seconds; None is said at each use."""
SOLO_SECONDS: Final = 3600.0
"""In these the largest model that one rank holds is in slow storage: 36 GB at 10 MB/s."""


class World:
    """All ranks of a step, as one of them sees it. Made by ``init``.

    Methods with a ``name`` are called by every rank, in the same order; a name may be used again. They raise
    ``PeerError`` at once when another rank has died or failed, and ``WaitTimeoutError``, naming those that were
    missing, after ``timeout`` (None: the timeout given to ``init``).

    Attributes:
        launch: this process's place, and who started it.
        rank, world_size, local_rank, local_world_size, node_rank, num_nodes: those of the launch.
        step_timeout: seconds that a wait takes at most that names no timeout; of a ``once`` for what takes a moment.
    """

    def __init__(self, launch: Launch, control: Control, group: FrameworkGroup | None, timeout: float) -> None:
        self.launch = launch
        self.rank, self.world_size = launch.rank, launch.world_size
        self.local_rank, self.local_world_size = launch.local_rank, launch.local_world_size
        self.node_rank, self.num_nodes = launch.node_rank, launch.num_nodes
        self._control = control
        self._group = group
        self.step_timeout = timeout
        self._channels = 0

    @property
    def start_id(self) -> str:
        """Sixteen hexadecimal digits: the same on every rank, and others for each start."""
        return self._control.world_id

    def open_channel(self, name: str) -> World:
        """Make what a thread of this rank uses to do things together with the same thread of the other ranks.

        Every rank calls this, and `close_channel` on what it gives. The methods of a World wait for all ranks, so two
        threads cannot use one.
        """
        self._channels += 1
        control = self._control.open_channel(f"{name}/{self._channels}")
        return World(self.launch, control, None, self.step_timeout)

    def close_channel(self) -> None:
        """End what `open_channel` has made."""
        self._control.leave(0)

    @property
    def solo_timeout(self) -> float:
        """Seconds for what one rank does while the others wait, such as writing a model: an hour, or `step_timeout`."""
        return max(self.step_timeout, SOLO_SECONDS)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.launch.rank == 0 and self.launch.role == "worker"

    @property
    def device(self) -> Any:
        """The ``torch.device`` of this rank; with TensorFlow the device's name, such as ``/GPU:0``.

        Raises:
            RuntimeError: ``init`` was called without a framework.
        """
        if self._group is None:
            raise RuntimeError('There is no device without a framework: call init("torch").')
        return self._group.device

    @property
    def strategy(self) -> Any:
        """The ``tf.distribute.Strategy`` of ``init("tensorflow")``.

        None on a process that computes for the coordinator in rank 0: it has nothing more to do than to leave the
        block, at whose end it serves until rank 0 is done.

        Raises:
            RuntimeError: ``init`` was called with another framework, or with none.
        """
        return self._of_tensorflow("strategy")

    @property
    def coordinator(self) -> Any:
        """The ``ClusterCoordinator`` of ``init("tensorflow", backend="parameter_server")`` on rank 0, else None.

        Raises:
            RuntimeError: ``init`` was called with another framework, or with none.
        """
        return self._of_tensorflow("coordinator")

    def _of_tensorflow(self, name: str) -> Any:
        if not hasattr(self._group, name):
            raise RuntimeError(f'There is no {name} without TensorFlow: call init("tensorflow").')
        return getattr(self._group, name)

    def once(
        self, function: Callable[[], _Value], *, name: str, scope: LeaderScope = "node", timeout: Timeout = None
    ) -> _Value:
        """Call the function on one rank and return its JSON value on all of them.

        Args:
            function: what to do; only the leader calls it.
            name: the same on every rank.
            scope: ``node``: local rank 0 of each node leads its node; ``job``: rank 0 leads all.
            timeout: longest wait for the leaders, such as `step_timeout` or `solo_timeout`; None waits as long as all
                ranks are alive, even for one that is stopped or hangs, because preparing data may take hours.

        Raises:
            OnceError: on every rank of the job, if any leader's function raised or returned what JSON cannot hold.
            Refusal: on every rank, if a leader raised one.
        """
        if scope not in ("node", "job"):
            raise ValueError(f"scope={scope!r}: it has to be 'node' or 'job'.")
        seconds = None if timeout is None else seconds_of(timeout, self.step_timeout)
        with silence_expected():
            return self._once(function, name, scope, seconds)

    def _once(self, function: Callable[[], _Value], name: str, scope: LeaderScope, seconds: float | None) -> _Value:
        leads = self.is_main if scope == "job" else self.local_rank == 0
        if not leads:
            return _value_of(self._control.meet("once", name, seconds, brings=False, scope=scope), name)
        brought, error = _attempt(function, name, self.launch)
        if isinstance(error, Refusal):
            raise error
        outcome = self._control.meet("once", name, seconds, brought, scope=scope)
        if error is not None and not isinstance(error, Exception):
            raise error  # the user pressed Ctrl-C, or the function called sys.exit
        try:
            return _value_of(outcome, name)
        except OnceError as once_error:
            raise once_error from error

    def barrier(self, name: str, timeout: Timeout = None) -> None:
        """Wait until every rank is here."""
        self._control.meet("barrier", name, seconds_of(timeout, self.step_timeout))

    def gather(self, value: _Value, name: str, timeout: Timeout = None) -> list[_Value]:
        """The JSON value of every rank, in rank order, on every rank: n lists of n; see also ``collect`` and ``max``.

        Raises:
            TypeError: JSON cannot hold the value.
            ControlError: it has more than 16 MiB, or all of them together have more than 64.
        """
        _check_json(value, f"The value for gather {name!r}")
        return self._control.meet("gather", name, seconds_of(timeout, self.step_timeout), value)

    def collect(self, value: _Value, name: str, timeout: Timeout = None) -> list[_Value] | None:
        """The JSON value of every rank, in rank order, on rank 0; None on the others.

        Where only rank 0 needs them: what all ranks get of all grows with the square of their number.

        Raises:
            TypeError: JSON cannot hold the value.
        """
        _check_json(value, f"The value for collect {name!r}")
        return self._control.meet("collect", name, seconds_of(timeout, self.step_timeout), value)

    def collect_in_rounds(self, value: Any, name: str) -> list[Any] | None:
        """The JSON value of every rank, however long, in rank order, on rank 0; None on the others.

        As ``collect``, in as many rounds as the longest value needs to fit into messages.

        Raises:
            TypeError: JSON cannot hold the value.
        """
        text = _check_json(value, f"The value for collect {name!r}")
        longest = int(self.max(len(text), f"{name}: lengths"))
        # A quarter of what a message holds: JSON within JSON may take twice as many bytes as it has characters.
        piece = max(1, min(VALUE_LIMIT, MESSAGE_LIMIT // self.world_size) // 4)
        rounds = -(-longest // piece)
        texts: list[list[str]] = [[] for _ in range(self.world_size)]
        for number in range(rounds):
            given = self.collect(text[number * piece :][:piece], f"{name}: {number + 1} of {rounds}")
            for pieces, one in zip(texts, given or (), strict=False):
                pieces.append(one)
        return [json.loads("".join(pieces)) for pieces in texts] if self.is_main else None

    def any(self, flag: bool, name: str, timeout: Timeout = None) -> bool:  # noqa: FBT001  (a flag is its whole point)
        """Whether the flag is true on at least one rank; the same answer on every rank."""
        found: bool = self._control.meet("any", name, seconds_of(timeout, self.step_timeout), bool(flag))
        return found

    def max(self, value: float, name: str, timeout: Timeout = None) -> float:
        """The largest of the numbers that the ranks give, on every rank; a whole number stays one."""
        found: float = self._control.meet("max", name, seconds_of(timeout, self.step_timeout), value)
        return found

    def sum(self, values: Sequence[float], name: str, timeout: Timeout = None) -> list[float]:
        """Element-wise sums over the ranks, in float64, added once and in rank order: the same bits on every rank.

        Raises:
            ControlError: the ranks give different numbers of values.
        """
        numbers = [float(value) for value in values]
        return self._control.meet("sum", name, seconds_of(timeout, self.step_timeout), numbers)

    def announce(self, name: str) -> None:
        """Tell all who wait for it, now or later; once told, it stays so."""
        self._control.set(f"announced/{name}", value=True)

    def wait_for_announcement(self, name: str) -> None:
        """Wait until some rank announces it, as long as that takes."""
        self._control.get(f"announced/{name}")

    def check_peers(self) -> None:
        """Raise ``PeerError`` if another rank is known to have died or failed; never waits."""
        news = self._control.bad_news()
        if news is not None:
            raise PeerError(news)

    def announce_failure(self, error: BaseException) -> None:
        """Tell the other ranks that this one fails with this error, before it closes what may take long; never raises.

        Leaving the block of ``init`` with the error tells them too, but only when all blocks inside it are closed. The
        rank cannot go on after this.
        """
        if isinstance(error, Refusal):
            self._control.refuse(str(error), error.kind)
        else:
            self._control.fail(error)

    def end_step(self) -> None:
        """Say that this rank has made a step; 0.3 µs. A loop of one's own that says so is not to be silent any more.

        From the third step on, a rank in which for half of `step_timeout`, 10 s at least, no step has ended and no
        batch of ours has come is ended, and with it the world: the log of each rank tells where it stood, and the
        message names the one that has held up the others. A ``once`` may take longer.
        """
        note_step()

    def note(self, text: str) -> None:
        """Print a line, on rank 0 only."""
        if self.is_main:
            with suppress(OSError):  # a log on a disk that is full
                print(text, flush=True)


def _attempt(function: Callable[[], object], name: str, launch: Launch) -> tuple[dict[str, Any], BaseException | None]:
    """What the leader of a ``once`` brings: the function's value, or what it raised."""
    try:
        value = function()
        _check_json(value, f"The value of once {name!r}")
    except BaseException as error:  # noqa: BLE001  (whatever it is, the others must not wait for it)
        failure = {"error_type": type(error).__name__, "error_message": str(error)}
        return {"rank": launch.rank, "node": launch.node_rank, **failure}, error
    return {"rank": launch.rank, "node": launch.node_rank, "value": value}, None


def _value_of(outcome: dict[str, Any], name: str) -> Any:
    if "error_type" in outcome:
        raise OnceError(name, outcome["rank"], outcome["node"], outcome["error_type"], outcome["error_message"])
    return outcome["value"]


def _check_json(value: object, what: str) -> str:
    """The value as JSON; raises TypeError if JSON cannot hold it."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} has to be one that JSON can hold, and it is {value!r:.200} ({error}).") from None


def seconds_of(timeout: Timeout, default: float) -> float:
    """A time to wait in seconds.

    Raises:
        ValueError: it is not above 0.
    """
    if timeout is None:
        return default
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if seconds <= 0:
        raise ValueError(f"timeout={timeout!r}: it has to be above 0.")
    return seconds
