"""The device contract: a GPU that is there is used, or the error says why not; the CPU is never a silent substitute."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.distributed import Launch, Refusal, detect, init
from shared.distributed.control import Control
from shared.distributed.devices import (
    FrameworkGpus,
    NodeGpus,
    agree_on_devices,
    check_kernels,
    choose_gpu,
    find_twins,
    read_node,
    visible_identity,
)
from tests.helpers import clean_environment, run_ranks
from tests.shared.distributed.threads import launch_of, on_every_rank

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (dvs-builder@U16)\nGCC ...\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version: ...\n"
CU126 = FrameworkGpus("torch 2.13.0+cu126", "CUDA", "12.6", 0, "Install the build for CUDA 12.6.", "its own words")
CU130 = FrameworkGpus("torch 2.13.0+cu130", "CUDA", "13.0", 0, "Install the build for CUDA 12.6.")
CPU_BUILD = FrameworkGpus("torch 2.13.0+cpu", "", "", 0, "Install the build for CUDA 12.6.")
NONE = NodeGpus()
FOUR = NodeGpus(nvidia=4, driver="535.183.01", driver_cuda=(12, 2))
A100 = {"AZUREML_CR_COMPUTE_CONTEXT": json.dumps({"run_attempt_count": 1, "vm_size": "STANDARD_NC24ADS_A100_V4"})}


def launch(local_rank: int = 0, processes: int = 1) -> Launch:
    return detect({"RANK": str(local_rank), "WORLD_SIZE": str(processes)})


def machine(folder: Path, gpus: int = 0, driver: str = "") -> Path:
    """A root folder with the device files of so many GPUs."""
    (folder / "dev").mkdir()
    for name in [*(f"nvidia{number}" for number in range(gpus)), *(["nvidiactl", "nvidia-uvm"] if gpus else [])]:
        (folder / "dev" / name).touch()
    if driver:
        (folder / "proc/driver/nvidia").mkdir(parents=True)
        (folder / "proc/driver/nvidia/version").write_text(driver)
    return folder


# ---- what speaks for GPUs


@pytest.mark.parametrize(("text", "driver"), [(OPEN, "550.54.14"), (CLOSED, "535.183.01"), ("nothing known", "")])
def test_device_files_and_the_driver_are_read(text: str, driver: str, tmp_path: Path) -> None:
    node = read_node({}, machine(tmp_path, 2, text))
    assert (node.nvidia, node.driver, node.expects_gpu, node.wants_cpu) == (2, driver, True, False)


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"vm_size": "Standard_NC24ads_A100_v4"}, "the size Standard_NC24ads_A100_v4"),
        ({"vm_size": "STANDARD_ND96ISR_H100_V5", "gpu_count": 8}, "the size STANDARD_ND96ISR_H100_V5"),
        ({"vm_size": "Standard_NV36ads_A10_v5"}, "the size Standard_NV36ads_A10_v5"),
        ({"vm_size": None, "gpu_count": 2}, "2 GPU(s)"),
        # As a Kubernetes cluster of Azure ML sets it for a CPU job.
        ({"cluster_name": "k8s", "gpu_count": 0, "vm_size": None, "run_attempt_count": 1}, ""),
        ({"vm_size": "local"}, ""),
        ({"vm_size": "Standard_D4s_v3"}, ""),
        ({"vm_size": "Standard_NP10s"}, ""),  # FPGAs
        ({"vm_size": ["odd"], "gpu_count": "many"}, ""),
        ("no JSON", ""),
        ([1], ""),
    ],
)
def test_what_azure_ml_promises(context: Any, said: str, tmp_path: Path) -> None:
    text = context if isinstance(context, str) else json.dumps(context)
    node = read_node({"AZUREML_CR_COMPUTE_CONTEXT": text}, machine(tmp_path))
    assert (node.promised, node.expects_gpu) == (said, bool(said))


@pytest.mark.parametrize(
    ("visible", "wants_cpu"), [(None, False), ("", True), (" ", True), ("-1", True), ("-1,0", True), ("0", False)]
)
def test_who_hides_the_gpus_asks_for_the_cpu(visible: str | None, wants_cpu: bool, tmp_path: Path) -> None:
    environ = A100 if visible is None else {**A100, "CUDA_VISIBLE_DEVICES": visible}
    node = read_node(environ, machine(tmp_path, 2))
    assert node.wants_cpu == wants_cpu
    if wants_cpu:
        assert choose_gpu(node, CU126, launch()) is None
    else:
        with pytest.raises(Refusal, match="CUDA_VISIBLE_DEVICES=-1"):
            choose_gpu(node, CU126, launch())


def test_windows_lends_its_driver_to_linux(tmp_path: Path) -> None:
    assert not read_node({}, machine(tmp_path)).expects_gpu
    (tmp_path / "dev/dxg").touch()  # there on every machine of that kind, with and without a GPU of NVIDIA
    assert not read_node({}, tmp_path).expects_gpu
    (tmp_path / "usr/lib/wsl/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/wsl/lib/libcuda.so.1").touch()
    assert read_node({}, tmp_path).expects_gpu


# ---- which GPU a rank takes


@pytest.mark.parametrize(
    ("count", "local_rank", "processes", "chosen"),
    [(4, 2, 4, 2), (8, 1, 2, 1), (1, 0, 1, 0), (1, 3, 4, 0)],  # the last: one visible GPU per rank
)
def test_a_gpu_for_each_rank(count: int, local_rank: int, processes: int, chosen: int) -> None:
    usable = FrameworkGpus("torch 2", "CUDA", "12.6", count, "")
    assert choose_gpu(FOUR, usable, launch(local_rank, processes)) == chosen


def test_no_gpu_and_no_word_of_one_is_the_cpu() -> None:
    assert choose_gpu(NONE, CPU_BUILD, launch()) is None
    assert choose_gpu(NONE, CU130, launch()) is None


def test_more_ranks_than_gpus_are_refused_with_the_arithmetic() -> None:
    node = NodeGpus(nvidia=4, visible="0,1")
    with pytest.raises(Refusal, match=r"4 processes on node 0, but 2 GPU\(s\) \(CUDA_VISIBLE_DEVICES=0,1\): 2 too few"):
        choose_gpu(node, FrameworkGpus("torch 2", "CUDA", "12.6", 2, ""), launch(3, 4))


@pytest.mark.parametrize(
    ("node", "framework", "said"),
    [
        (
            FOUR,
            CU130,
            (
                "node 0 has 4 NVIDIA GPU(s), driver 535.183.01 (CUDA 12.2), and torch 2.13.0+cu130 (CUDA 13.0) cannot use "
                "them: CUDA 13 needs a driver of the 580 series or newer. Install the build for CUDA 12.6. "
                "To compute on the CPU all the same, set CUDA_VISIBLE_DEVICES=-1."
            ),
        ),
        (FOUR, CPU_BUILD, "torch 2.13.0+cpu (built for CPUs alone) cannot use them: it has no CUDA in it. Install"),
        (FOUR, CU126, "torch 2.13.0+cu126 (CUDA 12.6) cannot use them: its own words. "),
        (NodeGpus(nvidia=4, driver="535.183.01"), CU126, "cannot use them: libcuda.so.1, the driver's library, cannot"),
        (NodeGpus(nvidia=4, visible="7"), CU126, "cannot use them: CUDA_VISIBLE_DEVICES=7 names none of them. "),
        (
            NodeGpus(promised="the size Standard_NC24ads_A100_v4"),
            CU126,
            (
                "Azure ML names the size Standard_NC24ads_A100_v4 for node 0, no driver, and torch 2.13.0+cu126 (CUDA 12.6) "
                "finds no GPU: there is no device file /dev/nvidia0, so the driver of the node is not loaded, or the "
                "container was started without its GPUs. "
            ),
        ),
        (
            NodeGpus(promised="the size Standard_ND96isr_MI300X_v5", amd=True),
            CU126,
            "its GPUs are AMD's (/dev/kfd), which a build for CUDA cannot use",
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_is_an_error_with_driver_cuda_and_remedy(
    node: NodeGpus, framework: FrameworkGpus, said: str
) -> None:
    with pytest.raises(Refusal) as caught:
        choose_gpu(node, framework, launch())
    assert said in str(caught.value)


# ---- kernels for this GPU


TORCH_126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
TORCH_130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
TENSORFLOW = ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]


@pytest.mark.parametrize(
    ("capability", "built", "cuda", "driver_cuda"),
    [
        ((7, 0), TORCH_126, "12.6", (12, 2)),
        ((7, 5), ["sm_70"], "12.6", (12, 2)),  # machine code runs on later GPUs of the same generation
        ((6, 1), TORCH_126, "12.6", (12, 2)),
        ((9, 0), ["sm_90a"], "12.6", (12, 2)),
        ((12, 1), TORCH_130, "13.0", (13, 0)),
        ((9, 0), TENSORFLOW, "12.5.1", (12, 8)),
        ((9, 4), ["gfx942"], "", None),  # ROCm numbers its GPUs in another way
        ((9, 0), [], "12.6", (12, 2)),
    ],
)
def test_gpus_that_a_build_has_code_for(
    capability: tuple[int, int], built: list[str], cuda: str, driver_cuda: tuple[int, int] | None
) -> None:
    check_kernels("torch", "GPU", capability, built, cuda, NodeGpus(driver_cuda=driver_cuda))


@pytest.mark.parametrize(
    ("capability", "built", "cuda", "said"),
    [
        ((7, 0), TORCH_130, "13.0", "Tesla V100 has the capability 7.0, and torch 2 has no code for it"),
        ((12, 0), TORCH_126, "12.6", "no code for it, but for sm_50, sm_60"),
        (
            (9, 0),
            TENSORFLOW,
            "12.5.1",
            "only PTX of CUDA 12.5, which a driver of CUDA 12.2 (535.183.01) cannot compile",
        ),
    ],
)
def test_gpus_that_a_build_has_no_code_for(capability: tuple[int, int], built: list[str], cuda: str, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_kernels("torch 2", "Tesla V100", capability, built, cuda, FOUR)
    assert said in str(caught.value)


# ---- all ranks together


def test_two_ranks_on_one_gpu_are_named() -> None:
    assert find_twins(["GPU-a", "GPU-b", "", "GPU-c"]) == ""
    assert "ranks 0 and 2 see the same GPU (GPU-a)" in find_twins(["GPU-a", "GPU-b", "GPU-a"])


def agreed(found: Sequence[int], *visible: str) -> list[object]:
    """What the ranks of one node that see these GPUs, and can use so many of them, choose or are told."""

    def choose(control: Control, rank: int) -> object:
        node = NodeGpus(nvidia=2, visible=visible[rank])
        usable = FrameworkGpus("torch 2", "CUDA", "12.6", found[rank], "")
        place = launch_of(rank, len(visible), control.main_port)
        try:
            index = choose_gpu(node, usable, place)
            identity = visible_identity({"CUDA_VISIBLE_DEVICES": visible[rank]})
            agree_on_devices(control, place, node, usable.count, identity)
        except Refusal as refusal:
            control.refuse(str(refusal))
            raise
        return index

    return on_every_rank(len(visible), choose)


def test_one_visible_gpu_per_rank_is_accepted() -> None:
    assert agreed([1, 1, 1], "0", "1", "2") == [0, 0, 0]


@pytest.mark.parametrize(
    ("found", "visible", "said"),
    [
        ([1, 1], ("0", "0"), "ranks 0 and 1 see the same GPU"),
        ([1, 1], ("0", "0"), "2 processes on node 0, but 1 GPU(s) (CUDA_VISIBLE_DEVICES=0): 1 too few"),
        ([2, 0], ("0,1", ""), "1 of 2 ranks compute on GPUs and 1 on the CPU (rank 1)"),
        (
            [2, 0],
            ("0,1", "0,1"),
            "node 0 has 2 NVIDIA GPU(s), no driver, and torch 2 (CUDA 12.6) cannot use them",
        ),
    ],
)
def test_ranks_whose_devices_do_not_go_together_are_all_refused(
    found: list[int], visible: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for refusal in agreed(found, *visible):
        assert isinstance(refusal, Refusal)
        assert said in str(refusal)
    assert capfd.readouterr().err.count("error: ") == 1


SAY = """
    from shared.distributed import init
    with init({framework!r}) as world:
        print("DEVICE", world.device)
"""


@pytest.mark.parametrize(
    "framework",
    [
        "torch",
        pytest.param("tensorflow", marks=pytest.mark.slow),
        pytest.param("deepspeed", marks=pytest.mark.exhaustive),
        pytest.param("horovod", marks=pytest.mark.exhaustive),
    ],
)
def test_a_gpu_size_without_gpus_is_refused_under_every_framework(framework: str) -> None:
    (result,) = run_ranks(SAY.format(framework=framework), processes=1, env=A100)
    assert result.returncode == 2, result
    assert result.stderr.count("error: Azure ML names the size STANDARD_NC24ADS_A100_V4 for node 0, no driver") == 1
    assert "Traceback" not in result.stderr


def test_who_is_told_to_use_the_cpu_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for name, value in {**A100, "CUDA_VISIBLE_DEVICES": "-1"}.items():
        monkeypatch.setenv(name, value)
    with init("torch") as world:
        assert str(world.device) == "cpu"
