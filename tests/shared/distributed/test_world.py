"""``init`` and ``World`` in real processes: under every launcher, through every kind of end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from shared.distributed import ControlError, OnceError, Refusal, World, detect, init
from tests.helpers import (
    RankResult,
    RunningRank,
    clean_environment,
    finish,
    free_port,
    run_ranks,
    started,
    started_ranks,
)
from tests.shared.distributed.threads import on_ranks
from tests.waiting import wait_for

START = "from shared.distributed import init, Refusal\nwith init() as world:\n"
TORCH = "from shared.distributed import init, Refusal\nwith init('torch') as world:\n    import torch, torch.distributed as dist\n"
ALL_REDUCE = """
    value = torch.tensor([world.rank + 1.0], device=world.device)
    dist.all_reduce(value)
    # In one write: under torchrun the ranks share a pipe, and a line's end may come after another's line.
    print(f"rank {world.rank} of {world.world_size} got {value.item()}\\n", end="")
"""
ON_GPU = shutil.which("nvidia-smi") is not None


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The world of one in this process is started by nobody, and leaves its files elsewhere."""
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def outputs(results: list[RankResult]) -> list[str]:
    assert [result.returncode for result in results] == [0] * len(results), results
    return [result.stdout.strip() for result in results]


# ---- under every launcher


def test_plain_python_is_a_world_of_one_without_a_socket() -> None:
    def sockets() -> set[int]:
        return {one.fd for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN}

    before = sockets()  # of other tests in this process
    with init() as world:
        assert (world.rank, world.world_size, world.local_rank, world.node_rank, world.is_main) == (0, 1, 0, 0, True)
        assert world.once(lambda: (1, 2), name="o") == [1, 2]
        assert world.gather("x", "g") == ["x"]
        assert world.sum([1, 2.5], "s") == [1.0, 2.5]
        assert world.any(True, "a")
        world.barrier("b")
        assert sockets() <= before
        with pytest.raises(RuntimeError, match=r'init\("torch"\)'):
            _ = world.device


def test_no_framework_is_imported_unless_it_is_asked_for() -> None:
    code = (
        START
        + """
    import sys
    print([name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy", "tensorflow", "horovod")])
    """
    )
    assert outputs(run_ranks(code)) == ["[]", "[]"]


def test_azure_pytorch_on_two_nodes() -> None:
    code = (
        START
        + """
    print(world.rank, world.node_rank, world.local_rank, world.once(lambda: world.rank, name="leader"),
          world.once(lambda: world.rank, name="main", scope="job"))
    world.note("only once")
    """
    )
    results = run_ranks(code, nodes=2, processes=2)
    assert outputs(results) == ["0 0 0 0 0\nonly once", "1 0 1 0 0", "2 1 0 2 0", "3 1 1 2 0"]
    assert [result.stderr.count("distributed: ") for result in results] == [1, 0, 1, 0]
    assert "distributed: node 1 of 2, ranks 2-3 of 4, launched by azureml-pytorch, main 127.0.0.1:" in results[2].stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "processes"),
    [(2, 1), *(pytest.param(*shape, marks=pytest.mark.exhaustive) for shape in ((1, 2), (2, 2)))],
)
def test_torch_all_reduce_with_azure_variables(nodes: int, processes: int) -> None:
    results = run_ranks(TORCH + ALL_REDUCE, nodes, processes)
    world_size = nodes * processes
    total = world_size * (world_size + 1) / 2
    assert outputs(results) == [f"rank {rank} of {world_size} got {total}" for rank in range(world_size)]
    assert ON_GPU or results[0].stderr.strip().endswith(", gloo on cpu")


@pytest.mark.slow
def test_ranks_that_torchrun_starts_again_refuse_at_once(tmp_path: Path) -> None:
    code = """
    import os
    from shared.distributed import Refusal, init
    with init() as world:
        os.write(1, f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}\\n".encode())  # at once: both share a pipe
        raise Refusal("the batch does not divide")
    """
    options = ["--nproc_per_node", "2", "--max_restarts", "2", "--master_port", str(free_port()), "--monitor_interval"]
    with started(code, [{}], tmp_path, [sys.executable, "-m", "torch.distributed.run", *options, "0.1"]) as ranks:
        (result,) = finish(ranks)
    assert result.returncode == 1
    assert set(result.stdout.splitlines()) == {"start 0"}
    assert result.stderr.count("error: the batch does not divide") == 3


def test_missing_variables_are_set_inside_the_block_and_none_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "7000")
    with init():
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        assert [os.environ[name] for name in names] == ["0", "1", "0", "1", "127.0.0.1", "7000"]
        assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert "RANK" not in os.environ
    assert os.environ["MASTER_PORT"] == "7000"


def test_a_framework_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="framework='jax': it has to be None or one of 'torch'"), init("jax"):
        pass


@pytest.mark.slow
def test_every_socket_listens_on_loopback() -> None:
    code = (
        TORCH
        + """
    dist.barrier()
    print("ready", flush=True)
    import signal
    signal.pause()
    """
    )
    port = free_port()
    with started_ranks(code, 2, 1, {"MASTER_PORT": str(port)}) as ranks:
        for rank in ranks:
            rank.wait_for("ready")
        listening = [address for rank in ranks for address in listening_addresses(rank)]
    assert {("127.0.0.1", port), ("127.0.0.1", port + 1)} <= set(listening)
    assert {host for host, _ in listening} == {"127.0.0.1"}


def test_the_control_plane_listens_on_loopback() -> None:
    port = free_port()
    code = START + "    print('ready', flush=True)\n    import signal\n    signal.pause()\n"
    with started_ranks(code, 2, 1, {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": str(port)}) as ranks:
        ranks[0].wait_for("ready")
        assert [listening_addresses(rank) for rank in ranks] == [[("127.0.0.2", port + 1)], []]


def all_on_gpus(kind: str, name: str, timeout: float | None, value: list[float]) -> list[float]:
    """The meeting on devices, when each of four ranks brings the same."""
    assert (kind, name) == ("sum", "devices")
    return [4 * number for number in value]


def test_mistake_6_the_device_is_set_before_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU here, so torch's calls are only noted: their order and what they are given is the point."""
    import torch

    from shared.distributed import torch_group

    calls: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80"])
    monkeypatch.setattr(torch_group, "gpu_identity", str)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(("device", str(device))))
    monkeypatch.setattr(torch_group, "_store", lambda *_: torch.distributed.HashStore())
    monkeypatch.setattr(
        torch.distributed,
        "init_process_group",
        lambda backend, **given: calls.append((backend, str(given["device_id"]), given["rank"])),
    )
    launch = detect({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "head"})
    control = SimpleNamespace(world_id="a", start_timeout=None, meet=all_on_gpus)
    torch_group.start_torch(launch, control, None, timedelta(seconds=5))
    assert calls == [("device", "cuda:2"), ("nccl", "cuda:2", 2)]


def test_tf_config_with_a_parameter_server() -> None:
    port = free_port()
    cluster = {"worker": ["127.0.0.1:7001", "127.0.0.2:7001"], "ps": ["127.0.0.1:7002"]}
    tasks = [("worker", 0), ("worker", 1), ("ps", 0)]
    environments = [
        {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}),
            "MASTER_PORT": str(port),
            "AZUREML_NODE_COUNT": "2",
        }
        for kind, index in tasks
    ]
    code = (
        START
        + """
    print(world.launch.role, world.rank, world.world_size, world.is_main)
    if world.launch.role == "worker":
        print(world.gather(world.rank, "g"))
    """
    )
    with started(code, environments) as ranks:
        results = finish(ranks)
    assert outputs(results) == ["worker 0 2 True\n[0, 1]", "worker 1 2 False\n[0, 1]", "ps 0 2 False"]
    assert "ps 0 beside 2 workers, launched by azureml-tensorflow" in results[2].stderr


def test_values_longer_than_a_message_come_in_rounds() -> None:
    long = '"é' * (5 * 2**20)
    found = on_ranks(3, lambda world: world.collect_in_rounds([long, 2] if world.rank == 2 else world.rank, "parts"))
    assert found == [[0, 1, [long, 2]], None, None]


# ---- once


def test_mistake_5_once_that_raises_raises_on_every_rank() -> None:
    def work() -> None:
        raise ValueError("no such file: x")

    def act(world: World) -> object:
        with pytest.raises(OnceError, match="once 'prepare': rank") as caught:
            world.once(work, name="prepare")
        error = caught.value
        return error.rank, error.error_type, error.error_message, world.gather(world.rank, "still here")

    found = on_ranks(4, act, nodes=2)
    assert found[0] in [(rank, "ValueError", "no such file: x", [0, 1, 2, 3]) for rank in (0, 2)]
    assert found == found[:1] * 4


def test_once_that_returns_what_json_cannot_hold() -> None:
    for error in on_ranks(2, lambda world: world.once(lambda: {1, 2}, name="set")):
        assert isinstance(error, OnceError)
        assert "raised TypeError: The value of once 'set' has to be one that JSON can hold" in str(error)


def test_once_in_a_world_of_one() -> None:
    def fail() -> None:
        raise KeyError("x")

    with init() as world, pytest.raises(OnceError, match="KeyError") as caught:
        world.once(fail, name="o")
    assert isinstance(caught.value.__cause__, KeyError)


# ---- together


def test_sum_and_any() -> None:
    def act(world: World) -> object:
        total = world.sum([0.1 * (world.rank + 1), world.rank], "s")
        return total, world.any(world.rank == 2, "a"), world.any(False, "b")

    assert on_ranks(3, act) == [([(0.1 + 0.2) + 0.1 * 3, 3.0], True, False)] * 3


def test_a_value_that_json_cannot_hold() -> None:
    with init() as world, pytest.raises(TypeError, match="The value for gather 'g'"):
        world.gather(object(), "g")


def test_a_sum_of_different_lengths() -> None:
    for error in on_ranks(2, lambda world: world.sum([1.0] * (1 + world.rank), "totals")):
        assert isinstance(error, ControlError)
        assert "sum 'totals': rank 1 gave 2 number(s), and rank 0 gave 1." in str(error)


@pytest.mark.parametrize("timeout", [0, -1, timedelta(0)])
def test_a_time_out_has_to_be_above_0(timeout: float | timedelta) -> None:
    with init() as world, pytest.raises(ValueError, match="above 0"):
        world.barrier("b", timeout)


# ---- the end


ENDS = [
    ("raise Refusal('no')", 2, [2, 2, 2, 2], [1, 0, 0, 0]),
    ("if world.rank == 1: raise Refusal('no')", 1, [2, 2], [1, 0]),
    ("if world.rank == 0: raise Refusal('no')", 1, [2, 2], [1, 0]),
    ("world.once(refuse, name='prepare')", 1, [2, 2], [1, 0]),
    ("raise SystemExit(0)", 1, [0, 0], [0, 0]),
    ("if world.rank == 1: raise SystemExit(3)", 1, [1, 3], [0, 0]),
]


@pytest.mark.parametrize(("statement", "nodes", "codes", "said"), ENDS)
def test_exit_codes_and_a_refusal_that_is_said_once(
    statement: str, nodes: int, codes: list[int], said: list[int]
) -> None:
    code = f"def refuse(): raise Refusal('no')\n{START}    {statement}\n    world.barrier('b')\n"
    results = run_ranks(code, nodes, 2)
    assert [result.returncode for result in results] == codes
    assert [result.stderr.count("error: no") for result in results] == said
    assert 3 in codes or not any("Traceback" in result.stderr for result in results)


def test_a_refusal_in_a_world_of_one(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, init():
        raise Refusal("no")
    assert caught.value.code == 2
    assert "error: no\n" in capfd.readouterr().err


def test_an_exception_leaves_a_file_and_tells_the_others(tmp_path: Path) -> None:
    code = (
        START
        + """
    if world.rank == 3:
        raise ValueError("bad row")
    world.barrier("b")
    """
    )
    results = run_ranks(code, nodes=2, processes=2, cwd=tmp_path)
    assert [result.returncode for result in results] == [1, 1, 1, 1]
    assert "rank 3 (node 1) failed with ValueError: bad row" in results[0].stderr
    content = json.loads((tmp_path / "logs" / "error_rank_3.json").read_text())
    assert (content["rank"], content["node"], content["type"], content["message"]) == (3, 1, "ValueError", "bad row")
    assert "raise ValueError" in content["traceback"]
    assert json.loads((tmp_path / "logs" / "error_rank_0.json").read_text())["type"] == "PeerError"


@pytest.mark.slow
def test_an_exception_beside_a_torch_collective_ends_all_ranks() -> None:
    code = (
        TORCH
        + """
    dist.all_reduce(torch.ones(1))
    if world.rank == 1:
        raise ValueError("bad row")
    dist.all_reduce(torch.ones(1))
    """
    )
    results = run_ranks(code, processes=2)
    assert [result.returncode for result in results] == [1, 1]
    assert "distributed: before this, rank 1 (node 0) failed with ValueError: bad row" in results[0].stderr


def test_the_others_wait_for_a_rank_that_is_late_at_the_end(tmp_path: Path) -> None:
    code = """
        from pathlib import Path
        from shared.distributed import init
        from tests.waiting import wait_for
        with init() as world:
            if world.is_main:
                Path("leaving").touch()
            else:
                wait_for(Path("leaving").exists)
                Path("late").touch()
        print(Path("late").exists())
    """
    assert outputs(run_ranks(code, cwd=tmp_path)) == ["True", "True"]


def test_sigterm_ends_a_rank_at_once() -> None:
    code = START + "    print('in', flush=True)\n    import signal\n    signal.pause()\n"
    with started_ranks(code, 1, 2) as ranks:
        ranks[0].wait_for("in")
        ranks[0].kill(signal.SIGTERM)
        assert finish(ranks[:1])[0].returncode == -signal.SIGTERM


def test_sigusr1_shows_the_stacks() -> None:
    code = f"{START}    import threading\n    def stuck(): print('in', flush=True), threading.Event().wait()\n    stuck()\n"
    with started_ranks(code) as ranks:
        ranks[0].wait_for("in")
        ranks[0].kill(signal.SIGUSR1)
        wait_for(lambda: "in stuck" in ranks[0].stderr)
        assert ranks[0].process.poll() is None


def listening_addresses(rank: RunningRank) -> list[tuple[str, int]]:
    connections = psutil.Process(rank.process.pid).net_connections("inet")
    return [(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN]


def test_a_call_of_rank_0_that_keeps_pythons_lock_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    """TensorFlow's start waits for all workers and keeps the lock: whoever was not told before would never come."""
    code = """
        import ctypes, os
        from shared.distributed import init
        pipe = os.open("pipe", os.O_RDWR)
        with init() as world:
            if world.is_main:
                for _ in range(3):
                    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)  # unlike CDLL it keeps the lock
            else:
                os.write(pipe, b"x")
    """
    os.mkfifo(tmp_path / "pipe")
    outputs(run_ranks(code, processes=4, cwd=tmp_path))


def test_a_rank_that_works_alone_hears_of_a_death_when_it_asks(tmp_path: Path) -> None:
    code = (
        START
        + """
    import os
    from tests.waiting import wait_for
    world.barrier("all are here")
    world.check_peers()
    if world.rank == 1:
        os._exit(3)
    wait_for(world.check_peers)
    """
    )
    results = run_ranks(code, nodes=1, processes=2, cwd=tmp_path)
    assert [result.returncode for result in results] == [1, 3]
    assert "PeerError: rank 1 (node 0) has died" in results[0].stderr
