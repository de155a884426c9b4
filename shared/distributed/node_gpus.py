"""What speaks for GPUs on a node, read from the node itself: nothing here starts a process or imports a framework."""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import dataclass
from pathlib import Path

from shared.distributed.families import Environ

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_AZURE_GPU_SIZE = re.compile(r"(Standard_)?N[CDGV]", re.IGNORECASE)  # N is for accelerators; those of NP are FPGAs


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """What speaks for GPUs on this node, whether or not anything can use them.

    The program nvidia-smi is no sign: login nodes and images without GPUs have it too. Nor is AMD's /dev/kfd, which
    processors with graphics of their own have.

    Attributes:
        nvidia: number of NVIDIA's device files, /dev/nvidia0 and on.
        wsl: whether Windows lends its NVIDIA driver to this Linux.
        amd: whether AMD's driver is there.
        driver: version of NVIDIA's kernel module, such as ``535.183.01``; empty where there is none.
        driver_cuda: the newest CUDA that libcuda.so.1 here can run, such as (12, 2); None where it cannot be loaded.
        promised: the GPUs that Azure ML names for this node, in words; empty where it names none.
        visible: CUDA_VISIBLE_DEVICES, None where it is not set.
    """

    nvidia: int = 0
    wsl: bool = False
    amd: bool = False
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    promised: str = ""
    visible: str | None = None

    @property
    def expects_gpu(self) -> bool:
        """Whether the CPU would be a silent substitute."""
        return bool(self.nvidia or self.wsl or self.promised)

    @property
    def wants_cpu(self) -> bool:
        """Whether somebody has hidden the GPUs: no index, or -1, at which CUDA stops to read."""
        return self.visible is not None and self.visible.split(",")[0].strip() in ("", "-1")

    def in_words(self, node: int) -> str:
        """Such as ``node 0 has 4 NVIDIA GPU(s), driver 535.183.01 (CUDA 12.2)``."""
        cuda = f" (CUDA {dotted(self.driver_cuda)})" if self.driver_cuda else ""
        driver = f"driver {self.driver or 'of an unknown version'}{cuda}" if self.driver or cuda else "no driver"
        if self.nvidia:
            return f"node {node} has {self.nvidia} NVIDIA GPU(s), {driver}"
        if self.wsl:
            return f"node {node} has an NVIDIA GPU of Windows, {driver}"
        return f"Azure ML names {self.promised} for node {node}, {driver}"


def read_node(environ: Environ, root: Path = Path("/")) -> NodeGpus:
    """Read what speaks for GPUs on this node: /dev and /proc below `root`, and Azure ML's variables."""
    nvidia = sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in (root / "dev").glob("nvidia*"))
    wsl = (root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists()
    return NodeGpus(
        nvidia=nvidia,
        wsl=wsl,
        amd=(root / "dev/kfd").exists(),
        driver=_driver_version(root / "proc/driver/nvidia/version"),
        driver_cuda=_driver_cuda() if nvidia or wsl else None,
        promised=_promised(environ.get("AZUREML_CR_COMPUTE_CONTEXT", "")),
        visible=environ.get(VISIBLE_GPUS),
    )


def _promised(context: str) -> str:
    """The GPUs that AZUREML_CR_COMPUTE_CONTEXT names: Azure ML's JSON with ``vm_size`` and ``gpu_count``."""
    try:
        found: object = json.loads(context or "{}")
    except ValueError:
        return ""
    size, count = (found.get("vm_size"), found.get("gpu_count")) if isinstance(found, dict) else (None, None)
    if isinstance(size, str) and _AZURE_GPU_SIZE.match(size):
        return f"the size {size}"
    return f"{count} GPU(s)" if isinstance(count, int) and count > 0 else ""


def _driver_version(path: Path) -> str:
    """The version in the first line of the kernel module's text, ``... Kernel Module  535.183.01  Sun May 12 ...``."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else ""


def _driver_cuda() -> tuple[int, int] | None:
    """What libcuda.so.1 says; a package for forward compatibility counts, which the kernel module's version hides."""
    number = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if failed else (number.value // 1000, number.value % 1000 // 10)


def dotted(version: tuple[int, int]) -> str:
    """Such as ``12.2``."""
    return ".".join(map(str, version))
