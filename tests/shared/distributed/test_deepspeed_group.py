"""init("deepspeed"): the group is ours under any launcher, no variable is changed, and ranks end as they should."""

from __future__ import annotations

import pytest

from tests.helpers import run_ranks

CODE = """
    import os
    before = dict(os.environ)
    from shared.distributed import init

    with init("deepspeed") as world:
        import deepspeed, torch
        from deepspeed import comm
        assert comm.is_initialized() and comm.get_world_size() == world.world_size == torch.distributed.get_world_size()
        assert comm.get_rank() == world.rank
        comm.all_reduce(torch.ones(4))
    assert not torch.distributed.is_initialized()
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    own = ("DS_", "PYTORCH_", "TORCH", "_MLFLOW")  # what the libraries set for themselves when they are imported
    assert not [name for name in changed if not name.startswith(own)], changed
    print("DONE", world.rank, world.local_rank)
"""


@pytest.mark.slow
def test_two_ranks_end_well_and_leave_the_variables_alone() -> None:
    results = run_ranks(CODE, nodes=2, processes=1, env={"NCCL_SOCKET_IFNAME": "eth7", "AZUREML_EXPERIMENT_ID": "e"})
    assert [result.returncode for result in results] == [0, 0], "".join(result.stderr for result in results)
    assert [result.stdout.split("DONE ")[1].split() for result in results] == [["0", "0"], ["1", "0"]]
    assert "distributed: node 1 of 2, rank 1 of 2" in results[1].stderr
    assert "deepspeed over gloo on cpu" in results[1].stderr


def test_where_each_rank_sees_one_gpu_deepspeed_takes_that_one() -> None:
    from shared.distributed.deepspeed_group import local_ranks_to_replace

    mpi = {"LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "RANK": "7"}
    assert local_ranks_to_replace(0, mpi) == {"LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}
    assert local_ranks_to_replace(3, mpi) == local_ranks_to_replace(None, mpi) == {}
