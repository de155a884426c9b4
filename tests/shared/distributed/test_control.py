"""The control plane between real processes: who is missing, who died, who is there twice, and who must not come in."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from shared.distributed import ControlError, WaitTimeoutError
from shared.distributed.control import Control, SocketControl
from shared.distributed.joining import join_world
from shared.distributed.wire import MessageDecoder, encode_message, listen_on_port
from tests.helpers import finish, free_port, run_ranks, started_ranks
from tests.shared.distributed.threads import launch_of, on_every_rank, wait_until_waiting
from tests.waiting import TIMEOUT, wait_for

START = "from shared.distributed import init\nwith init() as world:\n"


# ---- what it is for


NUMBERS = [float(number) for number in range(200_000)]
BITS = [0.1, 1e16, -1e16, 0.3]  # whose sum depends on their order
MET: list[tuple[int, Callable[[Control, int], object], object]] = [
    (3, lambda control, rank: control.meet("gather", "g", TIMEOUT, [rank, "ß"]), [[rank, "ß"] for rank in range(3)]),
    (
        2,  # the same name again
        lambda control, rank: [control.meet("gather", "g", TIMEOUT, (rank, turn)) for turn in range(3)],
        [[[0, turn], [1, turn]] for turn in range(3)],
    ),
    (2, lambda control, _: control.meet("sum", "s", TIMEOUT, NUMBERS), [2 * number for number in NUMBERS]),
    (4, lambda control, rank: control.meet("sum", "s", TIMEOUT, [BITS[rank]]), [((0.1 + 1e16) - 1e16) + 0.3]),
]


@pytest.mark.parametrize(("world_size", "function", "expected"), MET, ids=range(len(MET)))
def test_values_meet_in_rank_order(
    world_size: int, function: Callable[[Control, int], object], expected: object
) -> None:
    assert on_every_rank(world_size, function) == [expected] * world_size


def test_a_value_is_waited_for() -> None:
    def late(control: Control, rank: int) -> object:
        if rank == 0:
            wait_until_waiting(control, 1, 2)
            control.set("port", 4242)
        return control.get("port", TIMEOUT)

    assert on_every_rank(3, late) == [4242] * 3


def test_a_value_that_nobody_sets() -> None:
    results = on_every_rank(2, lambda control, rank: control.get("port", 0.2) if rank else None)
    assert isinstance(results[1], WaitTimeoutError)


def test_a_wait_may_be_longer_than_the_system_can_wait_at_once() -> None:
    thirty_days = 30 * 86_400.0  # in milliseconds more than 31 bits hold; step_timeout may be so long

    def meet(control: Control, rank: int) -> object:
        if rank == 0:
            wait_until_waiting(control, 1)
        return control.meet("gather", "x", thirty_days, rank), control.get("key", thirty_days) if rank else (
            control.set("key", "value")
        )

    assert on_every_rank(2, meet) == [([0, 1], None), ([0, 1], "value")]


def test_parameter_servers_join_and_wait_for_the_end() -> None:
    def train(control: Control, place: int) -> object:
        if place == 2:  # the server
            return control.get("end", TIMEOUT)
        total = control.meet("sum", "s", TIMEOUT, [1.0])
        if place == 0:
            control.set("end", "done")
        return total

    assert on_every_rank(2, train, num_ps=1) == [[2.0], [2.0], "done"]


# ---- who is missing


def test_a_start_without_all_ranks_names_the_missing() -> None:
    port = free_port()
    missed = "start: timed out waiting for rank 1, rank 3."
    with ThreadPoolExecutor() as pool:
        second = pool.submit(join_world, launch_of(2, 4, port, nodes=2), {}, TIMEOUT)  # it asks until rank 0 is there
        with pytest.raises(WaitTimeoutError, match=missed):
            join_world(launch_of(0, 4, port, nodes=2), {}, timeout=3)
        with pytest.raises(WaitTimeoutError, match=missed):
            second.result()


def test_nobody_answers() -> None:
    port = free_port()
    with pytest.raises(WaitTimeoutError, match=rf"127\.0\.0\.1:{port + 1}.*Check that rank 0 has started"):
        join_world(launch_of(1, 2, port), {}, timeout=0.5)


def test_a_barrier_names_the_missing_ranks() -> None:
    ended = threading.Event()

    def meet(control: Control, rank: int) -> object:
        if rank in (1, 2):
            return ended.wait()
        if rank == 0:
            wait_until_waiting(control, 3)
        try:
            return control.meet("barrier", "epoch", TIMEOUT if rank else 0.2)
        finally:
            ended.set()

    results = on_every_rank(4, meet)
    assert isinstance(results[3], WaitTimeoutError)
    assert str(results[0]) == str(results[3]) == "barrier 'epoch': timed out waiting for rank 1, rank 2."


def test_ranks_that_wait_in_different_places_are_told_at_once() -> None:
    for error in on_every_rank(2, lambda control, rank: control.meet("barrier", "a" if rank else "b", TIMEOUT)):
        assert "rank 0 (in barrier 'b'), rank 1 (in barrier 'a')" in str(error)


def test_a_barrier_that_a_rank_has_already_left_behind() -> None:
    results = on_every_rank(2, lambda control, rank: control.meet("barrier", "b", TIMEOUT) if rank == 0 else None)
    assert "rank 1 has left the world already" in str(results[0])


# ---- who died


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_while_the_others_wait(victim: int) -> None:
    code = (
        START
        + f"""
    import signal
    print("in", flush=True)
    if world.rank == {victim}:
        signal.pause()
    world.barrier("b")
    """
    )
    with started_ranks(code, 2, 2) as ranks:
        for rank in ranks:
            rank.wait_for("in")
        ranks[victim].kill()
        results = finish(ranks)
    expected = "rank 1 (node 0) has died" if victim else "Rank 0 (node 0) is gone"
    for result in results:
        assert result.returncode == (-signal.SIGKILL if result.rank == victim else 1)
        assert result.rank == victim or expected in result.stderr


def test_news_that_come_with_an_answer_are_heard() -> None:
    """A rank that dies as soon as a barrier lets it go: rank 0's answer and the news may lie in one packet."""
    ours, theirs = socket.socketpair()
    control = SocketControl(ours, "world", 1, lambda _name: ours)
    news = {"error": "peer", "message": "rank 1 (node 0) has died", "news": True}
    with ours, theirs:
        theirs.sendall(encode_message({"ok": None}) + encode_message(news))
        control.set("key", "value")
        assert control.bad_news() == news["message"]
        assert control.bad_news() == news["message"], "and they are not forgotten"


def test_a_child_of_a_killed_rank_does_not_hide_its_death() -> None:
    code = (
        START
        + """
    import os, signal
    if world.rank == 1 and os.fork() == 0:
        signal.pause()
    print("in", flush=True)
    if world.rank == 1:
        signal.pause()
    world.barrier("b")
    """
    )
    with started_ranks(code, 1, 2) as ranks:
        for rank in ranks:
            rank.wait_for("in")
        ranks[1].kill()
        assert "rank 1 (node 0) has died" in finish(ranks[:1])[0].stderr


# ---- who must not come in


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(0, 2), (1, 3)], ("world_size=3 on rank 1", "world_size=2 on rank 0")),
        ([(0, 3), (1, 3), (1, 3)], ("rank 1 is there twice: process",)),
    ],
)
def test_ranks_that_see_different_worlds_or_are_there_twice(
    places: list[tuple[int, int]], said: tuple[str, ...]
) -> None:
    port = free_port()
    with ThreadPoolExecutor() as pool:
        joined = [pool.submit(join_world, launch_of(rank, size, port), {}, TIMEOUT) for rank, size in places]
    for each in joined:
        error = each.exception()
        assert isinstance(error, ControlError)
        assert all(words in str(error) for words in said)


def test_rank_0_twice_is_a_port_that_is_taken() -> None:
    with socket.socket() as holder:
        port = free_port()
        holder.bind(("127.0.0.1", port + 1))
        holder.listen()
        with pytest.raises(ControlError, match=f"cannot listen on port {port + 1} of 127.0.0.1.*Set MASTER_PORT"):
            join_world(launch_of(0, 2, port), {}, timeout=0.3)


def test_a_port_that_an_earlier_attempt_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    holder = socket.socket()
    holder.bind(("127.0.0.1", port))
    holder.listen()
    monkeypatch.setattr(time, "sleep", lambda _: holder.close())
    with listen_on_port("127.0.0.1", port, 1, patience=TIMEOUT) as listener:
        assert listener.getsockname() == ("127.0.0.1", port)


def test_the_same_port_at_once_again() -> None:
    code = "from shared.distributed import init\n" + 3 * "with init() as world:\n    world.barrier('b')\n"
    assert [result.returncode for result in run_ranks(code, processes=3)] == [0, 0, 0]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_ranks_of_another_job_wait_for_their_own() -> None:
    port = free_port()

    def join(run: str, rank: int, timeout: float) -> object:
        control = join_world(launch_of(rank, 2, port), {"AZUREML_RUN_ID": run}, timeout)
        met = control.meet("gather", "g", TIMEOUT, rank)
        control.leave(grace=TIMEOUT)
        return met

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(join, "ours", 0, TIMEOUT)
        wait_for(lambda: answers(port + 1))
        with pytest.raises(ControlError, match="the control plane of another job answers there"):
            join("theirs", 1, 2)
        assert join("ours", 1, TIMEOUT) == first.result() == [0, 1]


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        struct.pack(">I", 2**31),
        struct.pack(">I", 4) + b"[[[[",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 4000) + b"[" * 4000,
        encode_message({"op": "hello", "token": "x"}),
        encode_message({"op": "meet", "kind": "sum"}),
        b"",
    ],
)
def test_strangers_do_no_harm(noise: bytes) -> None:
    def disturbed(control: Control, rank: int) -> object:
        control.meet("barrier", "a", TIMEOUT)
        if rank == 1:
            with socket.create_connection(address(control), TIMEOUT) as stranger:
                stranger.sendall(noise)
                stranger.shutdown(socket.SHUT_WR)
                stranger.settimeout(TIMEOUT)
                try:
                    while stranger.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        return control.meet("gather", "b", TIMEOUT, rank)

    assert on_every_rank(2, disturbed) == [[0, 1]] * 2


def address(control: Control) -> tuple[str, int]:
    peer: tuple[str, int] = control._socket.getpeername()  # type: ignore[attr-defined]
    return peer


# ---- where it listens


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.3", "localhost"])
def test_a_main_address_on_loopback_is_listened_to_on_loopback(address: str) -> None:
    with listen_on_port(address, free_port(), num_nodes=2, patience=0) as listener:
        assert listener.getsockname()[0] in (address, "127.0.0.1", "::1")


def test_an_address_of_this_machine_is_listened_to_alone() -> None:
    own = [a.address for each in psutil.net_if_addrs().values() for a in each if a.family == socket.AF_INET]
    outside = [address for address in own if not address.startswith("127.")]
    if not outside:
        pytest.skip("this machine has no address but loopback")
    with listen_on_port(outside[0], free_port(), num_nodes=2, patience=0) as listener:
        assert listener.getsockname()[0] == outside[0]


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_translated_on_the_way_is_listened_to_on_every_interface(address: str) -> None:
    with listen_on_port(address, free_port(), num_nodes=2, patience=0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"  # noqa: S104


def test_a_host_name_that_means_loopback_here_is_not_loopback_to_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def debian(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", debian)
    with listen_on_port("head", free_port(), num_nodes=2, patience=0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"  # noqa: S104
    with listen_on_port("head", free_port(), num_nodes=1, patience=0) as listener:
        assert listener.getsockname()[0] == "127.0.1.1"


# ---- messages


def test_messages_arrive_whole_however_they_are_cut() -> None:
    messages = [{"a": 1}, {"b": "x" * 1000}, {"c": [1.5, None, True]}]
    stream = b"".join(map(encode_message, messages))
    for size in (1, 3, 7, len(stream)):
        decoder = MessageDecoder()
        received = [m for start in range(0, len(stream), size) for m in decoder.feed(stream[start : start + size])]
        assert received == messages
