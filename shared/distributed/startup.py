"""``init``: all ranks start together, and finish or fail together, whatever launched them."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from shared.distributed.address import is_loopback
from shared.distributed.control import Control
from shared.distributed.errors import ControlError, LaunchError, Refusal, UnsavedError, open_missing_streams, print_line
from shared.distributed.frameworks import FrameworkGroup, framework_starter
from shared.distributed.joining import join_world
from shared.distributed.launch import Launch, detect
from shared.distributed.liveness import expect_silence, limit_silence
from shared.distributed.world import World, seconds_of

_FAREWELL_SECONDS = 0.4  # others may still ask rank 0 why it fails; the launcher hears of it when it has ended
_CAUSE_FIRST_SECONDS = 2.0  # launchers report the log of the rank that ends first, and that is to have the reason


@contextmanager
def init(
    framework: str | None = None,
    *,
    backend: str | None = None,
    timeout: timedelta = timedelta(minutes=10),
    step_timeout: timedelta | None = None,
) -> Iterator[World]:
    """Join the world: find out who this is, meet all other ranks, and start the framework's group.

    Leaving the block, all ranks wait for each other and the group ends. A ``Refusal`` in it is printed once, by rank 0,
    without a traceback, and every rank exits with 2, or 1 if it is an ``UnsavedError``; ranks that torchrun then starts
    again refuse at once. Any other exception ends this rank without a collective: the others are told,
    ``logs/error_rank_<rank>.json`` is written, and the exception goes on.

    A framework's ranks compute on GPUs wherever the node has some; on the CPU where it has none, or where
    CUDA_VISIBLE_DEVICES is empty or -1. GPUs that cannot be used are a ``Refusal`` that says why; see ``devices``.

    Args:
        framework: ``torch``, ``deepspeed``, ``horovod`` or ``tensorflow``; None for the control plane alone (nothing
            but the standard library).
        backend: the framework's. ``torch`` and ``deepspeed``: ``nccl`` (None means that on GPUs) or ``gloo``;
            ``horovod``: whose tensors it exchanges, ``torch`` (None) or ``tensorflow``; ``tensorflow``:
            ``multi_worker`` (None) or ``parameter_server``.
        timeout: for the start.
        step_timeout: for each wait that names none, and for the framework's collectives, except TensorFlow's, which
            have no limit; None: `timeout` too.

    Raises:
        SystemExit: with 2, the environment contradicts itself, says half, or is of another launcher; see ``detect``.
        ControlError: the ranks did not find each other or do not agree.
    """
    open_missing_streams()
    seconds, step_timeout = seconds_of(timeout, 0.0), step_timeout or timeout
    launch = _detected()
    start = _earlier_refusal(launch) or (framework_starter(framework) if framework is not None else None)
    _prepare_for_hangs(step_timeout)
    control: Control | None = None
    exit_request: SystemExit | None = None
    with _heeding_afterwards():
        try:
            control = join_world(launch, os.environ, seconds)
            launch = replace(launch, main_port=control.main_port)
            with _variables(launch):
                group = start(launch, control, backend, step_timeout) if start is not None else None
                if launch.local_rank == 0:
                    print_line(_introduction(launch, group))
                try:
                    yield World(launch, control, group, seconds_of(step_timeout, 0.0))
                except SystemExit as request:
                    if request.code:
                        raise
                    exit_request = request
                _end_together(launch, control, group)
        except BaseException as error:
            _end_badly(error, launch, control)
            raise
        control.leave(grace=30.0)
    if exit_request is not None:
        raise exit_request


def _detected() -> Launch:
    try:
        return detect()
    except LaunchError as error:
        print_line(f"error: {error}")
        raise SystemExit(Refusal.exit_code) from None


def heed_no_more() -> None:
    """Let SIGTERM do nothing until this rank has left the block of ``init``; in the main thread.

    For a rank that has been told already. Where a node is taken away each rank is sent SIGTERM, some of them when all
    have long agreed to stop: one that died of it then, its model still to be saved or the others still closing, would
    end these with an error.
    """
    signal.signal(signal.SIGTERM, _heed_not)


def _heed_not(*_: object) -> None:
    """Do nothing; SIG_IGN would be passed on to the programs that this process starts."""


@contextmanager
def _heeding_afterwards() -> Iterator[None]:
    """Give SIGTERM at the end the handler of the beginning, where `heed_no_more` took it away and nobody has since."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _heed_not:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)  # None: not set by Python


def _end_together(launch: Launch, control: Control, group: FrameworkGroup | None) -> None:
    expect_silence()
    if launch.role == "worker":
        control.meet("barrier", "end of init", None)  # as long as rank 0 takes to save a large model
    if group is not None:
        group.close()


def _introduction(launch: Launch, group: FrameworkGroup | None) -> str:
    """One line that says who this node is among all of them."""
    suffix = f", {group.description}" if group is not None else ""
    if launch.launcher == "single":
        return f"distributed: one process, no launcher{suffix}"
    if launch.role != "worker":
        who = f"{launch.role} {launch.rank} beside {launch.world_size} workers"
    else:
        even = launch.num_nodes * launch.local_world_size == launch.world_size  # TF_CONFIG may have it otherwise
        first = launch.node_rank * launch.local_world_size if even else launch.rank
        last = first + launch.local_world_size - 1
        ranks = f"rank {first}" if last == first else f"ranks {first}-{last}"
        who = f"{ranks} of {launch.world_size}"
    restarts = _torchrun_restarts(launch)
    return (
        f"distributed: node {launch.node_rank} of {launch.num_nodes}, {who}, launched by {launch.launcher}"
        f"{f' (restart {restarts})' if restarts else ''}, main {launch.main_address}:{launch.main_port}{suffix}"
    )


def _torchrun_restarts(launch: Launch) -> int:
    """How often torchrun has started the ranks of this node again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) if launch.launcher == "torchrun" else 0


def _refusal_note() -> Path:
    """Where the ranks of a node say that they have refused: those of one torchrun, which is the parent of all."""
    return Path("logs", f"refusal_{os.getppid()}.txt")


def _earlier_refusal(launch: Launch) -> Callable[..., FrameworkGroup] | None:
    """A start that raises what an earlier one has: torchrun starts again whatever has failed, and would hear the same.

    No framework has to be imported for that.
    """
    if not _torchrun_restarts(launch) or not _refusal_note().is_file():
        return None
    text = _refusal_note().read_text(encoding="utf-8")

    def refuse(*_: object) -> FrameworkGroup:
        raise Refusal(text)

    return refuse


def _end_badly(error: BaseException, launch: Launch, control: Control | None) -> None:
    """Tell the others and leave, without any collective; a ``Refusal``, which rank 0 prints, becomes its exit code."""
    if isinstance(error, Refusal):
        if launch.launcher == "torchrun" and launch.local_rank == 0 and not isinstance(error, UnsavedError):
            _write_log(_refusal_note(), str(error))
        if control is not None:
            control.refuse(str(error), error.kind)
            control.leave(grace=5.0)
        if launch.rank != 0:
            time.sleep(_CAUSE_FIRST_SECONDS)
        raise SystemExit(error.exit_code) from None
    if isinstance(error, Exception):
        _write_error_file(error, launch)
    if control is not None:
        cause = control.fail(error)
        if cause is not None and not isinstance(error, ControlError):  # a framework knows only that somebody is gone
            print_line(f"distributed: before this, {cause}")
        control.leave(_FAREWELL_SECONDS)
        if cause is not None:  # another rank has failed before, and may still be writing its traceback
            time.sleep(_CAUSE_FIRST_SECONDS)


def _write_error_file(error: BaseException, launch: Launch) -> None:
    """Write ``logs/error_rank_<rank>.json``: time (epoch seconds), rank, node, type, message and traceback."""
    role = "rank" if launch.role == "worker" else launch.role
    content = {
        "time": time.time(),
        "rank": launch.rank,
        "node": launch.node_rank,
        "type": type(error).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    _write_log(Path("logs", f"error_{role}_{launch.rank}.json"), json.dumps(content, indent=1) + "\n")


def _write_log(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        print(f"warning: {path} could not be written: {problem}", file=sys.stderr, flush=True)


@contextmanager
def _variables(launch: Launch) -> Iterator[None]:
    """Set what frameworks read and the launcher has not set; never overwrite; take it back afterwards."""
    wanted = {
        "RANK": launch.rank,
        "WORLD_SIZE": launch.world_size,
        "LOCAL_RANK": launch.local_rank,
        "LOCAL_WORLD_SIZE": launch.local_world_size,
        "NODE_RANK": launch.node_rank,
        "MASTER_ADDR": launch.main_address,
        "MASTER_PORT": launch.main_port,
    }
    if is_loopback(launch.main_address):
        wanted["GLOO_SOCKET_IFNAME"] = "lo"  # gloo would take the interface that the host's name leads to
    added = {} if launch.role != "worker" else {name: str(v) for name, v in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _prepare_for_hangs(step_timeout: timedelta) -> None:
    """Set how long is too long, and let SIGUSR1 print the stack of every thread."""
    limit_silence(step_timeout.total_seconds())
    with suppress(OSError, RuntimeError, ValueError):  # stderr may be closed, or be no file
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2, all_threads=True)
