"""Lightning sees the world that the launcher's variables describe, and no other."""

from __future__ import annotations

import pytest
import torch

from shared.distributed import detect
from shared.distributed.errors import LaunchError

MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "AZ_BATCH_MASTER_NODE": "10.0.0.4:6000",
    "AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4",
    "AZUREML_NODE_COUNT": "2",
    "AZUREML_RUN_ID": "run",
}
pytestmark = pytest.mark.slow  # Lightning takes seconds to be imported, in the tests and not when they are collected
PYTORCH = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "NODE_RANK": "1",
    "AZUREML_NODE_COUNT": "2",
    "MASTER_ADDR": "10.0.0.4",
    "MASTER_PORT": "6105",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [(MPI, (4, 3, 1, 1, "10.0.0.4")), (PYTORCH, (8, 5, 1, 1, "10.0.0.4")), ({}, (1, 0, 0, 0, "127.0.0.1"))],
)
def test_it_says_what_was_detected(environ: dict[str, str], expected: tuple[object, ...]) -> None:
    from shared.distributed.lightning_cluster import LaunchedCluster

    cluster = LaunchedCluster(detect(environ))
    found = (
        cluster.world_size(), cluster.global_rank(), cluster.local_rank(), cluster.node_rank(), cluster.main_address
    )  # fmt: skip
    assert found == expected
    assert cluster.main_port == detect(environ).main_port
    assert cluster.creates_processes_externally


def test_a_trainer_that_was_told_otherwise_is_refused() -> None:
    from shared.distributed.lightning_cluster import LaunchedCluster

    cluster = LaunchedCluster(detect(MPI))
    cluster.validate_settings(num_devices=2, num_nodes=2)
    cluster.set_global_rank(3)
    permuted = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}
    LaunchedCluster(detect({**permuted, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"})).set_global_rank(2)  # from the local rank
    with pytest.raises(LaunchError, match="devices is 4"):
        cluster.validate_settings(num_devices=4, num_nodes=2)
    with pytest.raises(LaunchError, match="world size is 2"):
        cluster.set_world_size(2)


def test_ranks_that_see_one_gpu_each_are_nodes_of_one_to_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    from shared.distributed.lightning_cluster import LaunchedCluster, launch_of_devices

    launch = detect(PYTORCH)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert launch_of_devices(launch, torch.device("cuda", 1)) == launch
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert launch_of_devices(launch, torch.device("cpu")) == launch
    cluster = LaunchedCluster(launch_of_devices(launch, torch.device("cuda", 0)))
    assert (cluster.global_rank(), cluster.world_size(), cluster.local_rank(), cluster.node_rank()) == (5, 8, 0, 5)
    cluster.validate_settings(num_devices=1, num_nodes=8)
