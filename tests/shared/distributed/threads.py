"""Ranks as threads of this process, which meet over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shared.distributed import Launch, World
from shared.distributed.control import Control, SocketControl
from shared.distributed.joining import join_world
from tests.helpers import free_port
from tests.waiting import TIMEOUT, wait_for


def launch_of(
    rank: int, world_size: int, port: int, *, nodes: int = 1, num_ps: int = 0, role: str = "worker"
) -> Launch:
    """The place of a rank in a world on this machine."""
    each = world_size // nodes
    return Launch(rank, world_size, rank % each, each, rank // each, nodes, "test", "127.0.0.1", port, role, num_ps)


def on_every_rank(
    world_size: int, function: Callable[[Control, int], object], *, num_ps: int = 0, nodes: int = 1
) -> list[object]:
    """Run the function in one thread for each member of a world; its value or what it raised."""
    port = free_port()
    launches = [launch_of(rank, world_size, port, num_ps=num_ps, nodes=nodes) for rank in range(world_size)]
    launches += [launch_of(rank, world_size, port, num_ps=num_ps, role="ps") for rank in range(num_ps)]

    def member(place: int) -> object:
        try:
            control = join_world(launches[place], {}, TIMEOUT)
            try:
                return function(control, place)
            finally:
                control.leave(grace=TIMEOUT)
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(len(launches)) as pool:
        return list(pool.map(member, range(len(launches))))


def wait_until_waiting(main: Control, *ranks: int) -> None:
    """Wait until these workers wait for an answer; `main` is the control plane of rank 0."""
    assert isinstance(main, SocketControl)
    assert main._server is not None
    members = main._server._assembly._members
    wait_for(lambda: all(members["worker", rank].waiting for rank in ranks))


def on_ranks(count: int, function: Callable[[World], object], nodes: int = 1, step_timeout: float = 60) -> list[object]:
    """Run the function on the world of each rank; its value or what it raised."""

    def act(control: Control, rank: int) -> object:
        return function(World(launch_of(rank, count, control.main_port, nodes=nodes), control, None, step_timeout))

    return on_every_rank(count, act, nodes=nodes)
