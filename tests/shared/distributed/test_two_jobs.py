"""Jobs side by side on one machine, and ranks whose numbers only together show whether they can be right."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from shared.distributed import ControlError, Launch
from shared.distributed.assembly import Guest, find_misplaced_ranks
from shared.distributed.joining import join_world
from tests.helpers import clean_environment, free_port, run_ranks
from tests.waiting import TIMEOUT

BIN = Path(sys.executable).parent
HERE = Launch(0, 4, 0, 4, 0, 1, "openmpi", "127.0.0.1", 6105)


def gathered(launches: Mapping[str, list[Launch]]) -> dict[str, list[object]]:
    """What the ranks of each job get when all jobs run at once: the job's ranks and main ports, or what was raised.

    Rank 0 of a job starts when the job before it is complete; the other ranks are there before.

    Args:
        launches: the ranks of each job, by its namespace.
    """
    together = threading.Barrier(sum(map(len, launches.values())))
    complete = {job: threading.Event() for job in launches}
    before = dict(zip([*launches][1:], complete.values(), strict=False))

    def member(job: str, place: int) -> object:
        try:
            if place == 0 and job in before:
                before[job].wait()
            control = join_world(launches[job][place], {"PMIX_NAMESPACE": job}, TIMEOUT)
            complete[job].set()
            together.wait()  # all worlds are there at the same time
            met = control.meet("gather", "g", TIMEOUT, [job, place, control.main_port])
            control.leave(grace=TIMEOUT)
        except (ControlError, threading.BrokenBarrierError) as error:
            together.abort()
            return error
        return met

    with ThreadPoolExecutor(together.parties) as pool:
        begun = {job: pool.map(partial(member, job), range(len(ranks))) for job, ranks in launches.items()}
        return {job: list(results) for job, results in begun.items()}


def test_jobs_whose_ids_give_the_same_port_do_not_meet() -> None:
    port = free_port()
    ranks = [replace(HERE, rank=rank, local_rank=rank, main_port=port) for rank in range(4)]
    results = gathered({"first": ranks, "second": ranks, "third": ranks})
    ports = set()
    for job, found in results.items():
        assert not isinstance(found[0], Exception), found
        ((_, _, used), *_) = found[0]
        assert found == [[[job, place, used] for place in range(4)]] * 4
        ports |= {used, used + 1}
    assert len(ports) == 6


def test_ranks_of_torchrun_meet_also_where_the_port_after_its_own_is_taken() -> None:
    """`--standalone` has the kernel draw a port, and any connection on the machine may have got the next one."""
    with socket.create_server(("127.0.0.1", 0)) as agent:
        port = agent.getsockname()[1]
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port + 1))
            code = """
                from shared.distributed import init
                with init() as world:
                    print(world.gather(world.rank, "g"))
            """
            standalone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "drawn"}
            standalone |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
            ended = run_ranks(code, 1, 2, env=standalone)
    assert [(rank.returncode, rank.stdout) for rank in ended] == [(0, "[0, 1]\n")] * 2, ended


def test_a_main_port_that_a_stranger_holds_is_passed_over() -> None:
    port = free_port()
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        ranks = [replace(HERE, rank=rank, world_size=2, local_rank=rank, main_port=port) for rank in range(2)]
        results = gathered({"job": ranks})
    assert results["job"] == [[["job", 0, port + 2], ["job", 1, port + 2]]] * 2


def test_local_ranks_of_ranks_that_are_spread_over_the_nodes_are_refused_on_every_rank() -> None:
    port = free_port()
    spread = [
        Launch(rank, 4, rank // 2, 2, rank // 2, 2, "openmpi", "127.0.0.1", port) for rank in range(4)
    ]  # as of mpirun --map-by node: ranks 0 and 2 are on the first node
    results = gathered({"job": spread})["job"]
    assert all("Node 0 cannot be one node: rank 0 and rank 1 are both local rank 0" in str(each) for each in results)


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ([(0, 0, "a"), (0, 2, "a"), (0, 1, "a"), (0, 3, "a")], ""),
        ([(0, 1, "a"), (0, 0, "a"), (1, 0, "b"), (1, 1, "b")], ""),
        ([(0, 1, "a"), (0, 0, "a"), (1, 0, "a"), (1, 1, "a")], ""),  # emulated nodes
        ([(0, 1, "a"), (0, 0, "b"), (1, 1, "a"), (1, 0, "b")], "rank 0 is on the host a and rank 1 on b"),
        ([(0, 0, "a"), (0, 1, "b")], ""),  # ranks of one node in containers, in order: nothing says that it is wrong
    ],
)
def test_what_the_ranks_together_know_of_their_nodes(places: list[tuple[int, int, str]], problem: str) -> None:
    guests = [Guest(node=node, local_rank=local_rank, host=host) for node, local_rank, host in places]
    found = find_misplaced_ranks({("worker", rank): guest for rank, guest in enumerate(guests)})
    assert problem in found
    assert bool(found) == bool(problem)


@pytest.mark.slow
def test_two_plain_mpiruns_at_once_and_a_prterun(tmp_path: Path) -> None:
    if not (BIN / "prterun").exists():
        pytest.skip("no Open MPI 5 beside this Python")
    script = tmp_path / "script.py"
    script.write_text(
        "import os\nfrom pathlib import Path\nfrom shared.distributed import init\nfrom tests.waiting import wait_for\n"
        "with init() as world:\n    Path(f'job-{os.environ[\"PMIX_NAMESPACE\"]}').touch()\n"
        "    wait_for(lambda: len([*Path().glob('job-*')]) == 2)\n    found = world.gather(world.local_rank, 'g')\n"
        "    if world.is_main: print(found)\n"
    )
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    mpirun = [str(BIN / "mpirun"), *root, "--oversubscribe", "-n", "4", sys.executable, str(script)]
    prterun = [str(BIN / "prterun"), *root, "-n", "1", sys.executable, str(script)]
    jobs = [
        subprocess.Popen(
            command, cwd=tmp_path, env=clean_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for command in (mpirun, mpirun, prterun)
    ]
    outputs = [job.communicate(timeout=TIMEOUT) for job in jobs]
    for job, (stdout, stderr) in zip(jobs[:2], outputs[:2], strict=True):
        assert job.returncode == 0, stderr
        assert sorted(eval(stdout)) == [0, 1, 2, 3]  # noqa: S307
    assert jobs[2].returncode == 2
    assert "Traceback" not in outputs[2][1]
    assert "PMIX_RANK=0: a launcher that allranks does not read" in outputs[2][1]
    assert "horovodrun are read. Start the script with mpirun" in outputs[2][1]
