"""A rank that waits in native code for one that has gone is ended; one that works is not."""

from __future__ import annotations

import signal
import time

import pytest

from tests.helpers import azure_variables, finish, free_port, started

CODE = """
    import time
    from shared.distributed import init, liveness
    liveness.STUCK_SECONDS = 2.0
    with init() as world:
        print("in", flush=True)
        if world.rank == 2:
            until = time.monotonic() + 5
            while time.monotonic() < until:
                sum(range(1000))
            world.barrier("the end")
        else:
            time.sleep(60)  # as a collective of gloo that does not notice
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_stands_still_is_ended(victim: int) -> None:
    port = free_port()
    with started(CODE, [azure_variables(rank, 1, 3, port) for rank in range(3)]) as ranks:
        for rank in ranks:
            rank.wait_for("in")
        ranks[victim].kill()
        killed_at = time.monotonic()
        stuck, working = finish([ranks[1 - victim], ranks[2]], 20)
        assert time.monotonic() - killed_at < 15
    assert ranks[victim].process.returncode == -signal.SIGKILL
    assert stuck.returncode == 1
    said = "rank 1 (node 0) has died: its process ended" if victim else "Rank 0 (node 0) is gone"
    assert said in stuck.stderr
    assert "This rank has stood still for 2 s" in stuck.stderr
    assert "Current thread" in stuck.stderr
    assert "stood still" not in working.stderr
    assert said in working.stderr or "Rank 0 (node 0) is gone" in working.stderr
