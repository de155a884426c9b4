"""Which uses of a machine are wrong, and which are nobody's business."""

from __future__ import annotations

import pytest

from allranks.sizes import MachineUse, find_misfits
from allranks.spec.distribution import distribution_kind

H100, A100, V100, T4 = (
    "Standard_ND96isr_H100_v5",
    "Standard_NC24ads_A100_v4",
    "Standard_NC24s_v3",
    "Standard_NC64as_T4_v3",
)
PYTORCH, MPI, TENSORFLOW, NONE = (
    distribution_kind(name).starts_processes for name in ("pytorch", "mpi", "tensorflow", "")
)


@pytest.mark.parametrize(
    ("use", "where", "severity", "said"),
    [
        (MachineUse(T4, 1, 8, PYTORCH), "distribution.process_count_per_instance", "error", "8 processes on each node"),
        (MachineUse(A100, 1, 2, MPI), "distribution.process_count_per_instance", "error", "has 1 A100 GPU: each rank"),
        (MachineUse(H100, 1, 1, PYTORCH), "distribution.process_count_per_instance", "warning", "7 would be paid for"),
        (
            MachineUse(H100, 1, 2, PYTORCH, "torchrun a.py"),
            "distribution.process_count_per_instance",
            "warning",
            "6 would",
        ),
        (MachineUse(A100, 2, 1, PYTORCH), "resources.instance_count", "warning", "which has no InfiniBand"),
        (MachineUse(A100, 2, 1, TENSORFLOW), "resources.instance_count", "warning", "which has no InfiniBand"),
        (MachineUse("ND96asr_v4", 1, 1, PYTORCH), "resources.instance_type", "warning", "is short for a size"),
        (MachineUse(V100, 1, 4, PYTORCH), "resources.instance_type", "warning", "was retired on 2025-09-30"),
        (
            MachineUse(A100, 1, 1, PYTORCH, variables={"NCCL_NET": "IB"}),
            "environment_variables.NCCL_NET",
            "error",
            "asks for InfiniBand",
        ),
        (
            MachineUse(A100, 1, 1, PYTORCH, variables={"NCCL_IB_HCA": "mlx5"}),
            "environment_variables.NCCL_IB_HCA",
            "warning",
            "has no effect",
        ),
        (
            MachineUse(H100, 2, 8, PYTORCH, variables={"NCCL_IB_DISABLE": "1"}),
            "environment_variables.NCCL_IB_DISABLE",
            "warning",
            "switches off the 3200 Gb/s",
        ),
    ],
)
def test_one_thing_is_found(use: MachineUse, where: str, severity: str, said: str) -> None:
    (found,) = find_misfits(use)
    assert (found.where, found.severity) == (where, severity)
    assert said in found.message
    assert found.hint


@pytest.mark.parametrize(
    "use",
    [
        MachineUse(H100, 4, 8, PYTORCH),
        MachineUse(H100, 1, 1, PYTORCH, "torchrun --nproc_per_node 8 train.py"),
        MachineUse(H100, 1, 1, PYTORCH, "accelerate launch train.py"),
        MachineUse(H100, 2, 1, TENSORFLOW),  # one worker uses all GPUs of its node
        MachineUse(H100, 1, 1, NONE),  # no distribution: nobody said that it wants the GPUs
        MachineUse(H100, None, None, PYTORCH),  # bound to what is known when it runs
        MachineUse("Standard_DS3_v2", 4, 16, PYTORCH),
        MachineUse("Standard_HB120rs_v3", 4, 16, MPI),
        MachineUse(A100, 1, 1, PYTORCH, variables={"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"}),
        MachineUse(H100, 1, 8, PYTORCH, variables={"NCCL_IB_DISABLE": "1"}),
    ],
)
def test_nothing_is_wrong(use: MachineUse) -> None:
    assert list(find_misfits(use)) == []


def test_an_environment_of_ours_that_a_size_does_not_suit_is_an_error() -> None:
    pytorch, tensorflow = (f"azureml:allranks-{name}:0.1.0" for name in ("pytorch", "tensorflow"))
    (found,) = find_misfits(MachineUse("Standard_ND96isr_MI300X_v5", 1, 8, PYTORCH, environment=pytorch))
    assert (found.where, found.severity) == ("resources.instance_type", "error")
    assert "the environment 'pytorch' does not suit Standard_ND96isr_MI300X_v5: its GPUs are AMD's" in found.message
    (found,) = find_misfits(MachineUse(H100, 1, environment=tensorflow))
    assert found.severity == "warning"
    assert "needs a driver of series 555 or newer" in found.message
    assert not list(find_misfits(MachineUse(H100, 1, 8, PYTORCH, environment=pytorch)))
    assert not list(
        find_misfits(MachineUse("Standard_ND96isr_MI300X_v5", 1, 8, PYTORCH, environment="azureml:theirs:1"))
    )
