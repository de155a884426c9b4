"""What a save costs the control plane: a thousand ranks over real sockets, with the messages that ranks send."""

from __future__ import annotations

import hashlib
import selectors
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from shared.checkpoint import saving
from shared.checkpoint.files import KeepRule, commit_checkpoint, find_damage, read_manifest, step_folder
from shared.checkpoint.saving import CheckpointEngine
from shared.checkpoint.seal import FileSeal
from shared.distributed import Launch, World
from shared.distributed.control import Control
from shared.distributed.meeting import hello_message
from shared.distributed.server import ControlServer
from shared.distributed.wire import Message, MessageDecoder, encode_message

NODE = 8
TOKEN = "of the job"  # noqa: S105


class Recorder(Control):
    """Keeps what a rank would send, and answers as if it were alone."""

    def __init__(self) -> None:
        super().__init__("0123456789abcdef", 0)
        self.sent: list[bytes] = []

    def open_channel(self, name: str) -> Control:  # noqa: ARG002
        return self

    def leave(self, grace: float) -> None:
        pass

    def _exchange(self, data: bytes, timeout: float | None) -> Message:  # noqa: ARG002
        self.sent.append(data)
        return {"ok": [] if b'"kind":"collect"' in data else {"value": None}}


def messages_of_a_save(launch: Launch, folder: Path) -> list[bytes]:
    """What a rank's save sends: two messages."""
    control = Recorder()
    engine = CheckpointEngine(World(launch, control, None, 60), folder, timedelta(minutes=10))
    engine.save(40, [], {}, {"generators": launch.rank})
    engine.wait()
    return control.sent


def seals_of(rank: int) -> dict[str, FileSeal]:
    """What a rank says of its two files."""
    names = (f"rank-{rank:05d}-0123456789x1.{kind}" for kind in ("json", "safetensors"))
    return {name: FileSeal(10**9 + rank, hashlib.sha256(bytes(rank)).hexdigest()) for name in names}


def nothing(rank: int) -> None:
    """A rank was answered, and sends nothing more."""


class Ranks:
    """The sockets of all ranks, in one thread."""

    def __init__(self, count: int, port: int) -> None:
        self.bytes = 0
        self._selector = selectors.DefaultSelector()
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
        self._answers = [0] * count
        self._round = 0
        for rank, each in enumerate(self._sockets):
            self._selector.register(each, selectors.EVENT_READ, (rank, MessageDecoder()))

    def send(self, rank: int, data: bytes) -> None:
        self.bytes += len(data)
        self._sockets[rank].sendall(data)

    def receive(self, answered: Callable[[int], None]) -> None:
        """Until each has one more answer; one that comes early, as rank 0 has committed, counts for the next round."""
        self._round += 1
        while min(self._answers) < self._round:
            for key, _ in self._selector.select(30):
                rank, decoder = key.data
                data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                assert data, f"the server has closed the connection of rank {rank}"
                self.bytes += len(data)
                for message in decoder.feed(data):
                    assert "ok" in message, message
                    self._answers[rank] += 1
                    if self._answers[rank] == self._round:
                        answered(rank)

    def close(self) -> None:
        for each in self._sockets:
            each.close()


@pytest.mark.parametrize("count", [256, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_save_is_agreed_on_in_a_second_and_ten_megabytes(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "write_rank_files", lambda _path, rank, *_: seals_of(rank))
    launches = [
        Launch(r, count, r % NODE, NODE, r // NODE, count // NODE, "test", "127.0.0.1", 1) for r in range(count)
    ]
    saves = [messages_of_a_save(launch, tmp_path / "ranks") for launch in launches]
    assert {len(sent) for sent in saves} == {2}
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    server = ControlServer(listener, launches[0], TOKEN)
    server.start()
    ranks = Ranks(count, listener.getsockname()[1])
    try:
        for rank, launch in enumerate(launches):
            ranks.send(rank, encode_message(hello_message(launch, TOKEN, "checkpoints/1")))
        ranks.receive(nothing)
        ranks.bytes, began = 0, time.perf_counter()
        for rank, (collect, _) in enumerate(saves):
            ranks.send(rank, collect)

        def commit(rank: int) -> None:
            if rank == 0:
                commit_all(tmp_path / "checkpoints", count)
            ranks.send(rank, saves[rank][1])

        ranks.receive(commit)
        ranks.receive(nothing)
        seconds = time.perf_counter() - began
    finally:
        ranks.close()
        server.stop(0)
    print(f"{count} ranks: {seconds:.2f} s, {ranks.bytes / 1e6:.2f} MB")
    assert ranks.bytes < 10e6
    assert seconds < (1 if count < 1000 else 2), "the ranks' side of a thousand sockets runs here too"
    path = step_folder(tmp_path / "checkpoints", 40)
    assert len(read_manifest(path).files) == 2 * count + 1
    assert "is missing" in str(find_damage(path))


def commit_all(folder: Path, count: int) -> None:
    """Commit what so many ranks would have written."""
    step_folder(folder, 40).mkdir(parents=True)
    files = {name: seal for rank in range(count) for name, seal in seals_of(rank).items()}
    commit_checkpoint(folder, 40, "0123456789x1", "{}", files, KeepRule())
