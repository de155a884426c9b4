"""Which device a rank computes on: a GPU that is there, or an error; the CPU where there is none or somebody says so.

A framework that cannot use a GPU takes the CPU, with a warning at most, and the bill is that of the GPU. So what speaks
for GPUs is read from the node itself, and compared with what the framework can use. Nothing here starts a process or
imports a framework.
"""

from __future__ import annotations

import ctypes
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.distributed.control import Control
from shared.distributed.errors import Refusal
from shared.distributed.families import Environ
from shared.distributed.launch import Launch

ROOT = Path("/")  # where device files are looked for
VISIBLE = "CUDA_VISIBLE_DEVICES"
ON_CPU = f"To compute on the CPU all the same, set {VISIBLE}=-1."
AZURE_GPU_SIZE = re.compile(r"(Standard_)?N[CDGV]", re.IGNORECASE)  # N is for accelerators; those of NP are FPGAs

OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest series of drivers for each major version of CUDA, whatever its minor version.

https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""


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
        cuda = f" (CUDA {_dotted(self.driver_cuda)})" if self.driver_cuda else ""
        driver = f"driver {self.driver or 'of an unknown version'}{cuda}" if self.driver or cuda else "no driver"
        if self.nvidia:
            return f"node {node} has {self.nvidia} NVIDIA GPU(s), {driver}"
        if self.wsl:
            return f"node {node} has an NVIDIA GPU of Windows, {driver}"
        return f"Azure ML names {self.promised} for node {node}, {driver}"


@dataclass(frozen=True, slots=True)
class FrameworkGpus:
    """What a framework says of the GPUs.

    Attributes:
        name: framework and version.
        built_for: such as ``CUDA 12.6`` or ``ROCm 6.4``; empty for a build for CPUs alone.
        count: number of GPUs that it can use.
        remedy: a sentence that says how to get a build that drivers and GPUs of today's nodes suit.
        complaint: why it can use none, in its own words, if it has any.
    """

    name: str
    built_for: str
    count: int
    remedy: str
    complaint: str = ""


def read_node(environ: Environ, root: Path | None = None) -> NodeGpus:
    """Read what speaks for GPUs on this node from device files, the driver and Azure ML's variables.

    Args:
        environ: the process's variables.
        root: where /dev and /proc are; None is ``ROOT``.
    """
    root = ROOT if root is None else root
    nvidia = sum(bool(re.fullmatch(r"nvidia\d+", path.name)) for path in (root / "dev").glob("nvidia*"))
    wsl = (root / "dev/dxg").exists() and (root / "usr/lib/wsl/lib/libcuda.so.1").exists()
    return NodeGpus(
        nvidia=nvidia,
        wsl=wsl,
        amd=(root / "dev/kfd").exists(),
        driver=_driver_version(root / "proc/driver/nvidia/version"),
        driver_cuda=_driver_cuda() if nvidia or wsl else None,
        promised=_promised(environ.get("AZUREML_CR_COMPUTE_CONTEXT", "")),
        visible=environ.get(VISIBLE),
    )


def choose_gpu(node: NodeGpus, framework: FrameworkGpus, launch: Launch) -> int | None:
    """The number of this rank's GPU among those that it sees; None for the CPU.

    Each rank may see all GPUs of its node, or one of its own; ``agree_on_devices`` finds ranks that see the same one.

    Raises:
        Refusal: there are GPUs that cannot be used, or fewer than ranks on this node.
    """
    if framework.count == 0:
        if node.wants_cpu or not node.expects_gpu:
            return None
        raise Refusal(_unusable(node, framework, launch.node_rank))
    if launch.local_world_size <= framework.count:
        return launch.local_rank
    if framework.count == 1:
        return 0
    raise Refusal(too_few_gpus(node, framework.count, launch))


def too_few_gpus(node: NodeGpus, count: int, launch: Launch) -> str:
    """The arithmetic of more ranks than GPUs on a node."""
    wanted = launch.local_world_size
    visible = f" ({VISIBLE}={node.visible})" if node.visible is not None else ""
    return (
        f"{wanted} processes on node {launch.node_rank}, but {count} GPU(s){visible}: {wanted - count} too few. "
        f"Start at most {count} process(es) per node, or let each process see one GPU of its own. {ON_CPU}"
    )


def check_kernels(
    framework: str, gpu: str, capability: tuple[int, int], built: Sequence[str], cuda: str, node: NodeGpus
) -> None:
    """See that a build has code for a GPU: a framework only warns, and fails at the first kernel.

    Machine code (``sm_80``) runs on GPUs of the same generation that are as new or newer; PTX (``compute_90``) on every
    newer one, if the driver knows the CUDA that wrote it.

    Args:
        framework: name and version.
        gpu: its name.
        capability: the GPU's, such as (9, 0).
        built: what the build has code for; empty where it does not say.
        cuda: the version that it was built with.
        node: for the driver's CUDA.

    Raises:
        Refusal: there is no code that this GPU and this driver can run.
    """
    found = [re.match(r"(sm|compute)_(\d+)(\d)[a-z]?$", name) for name in built]
    codes = [(match[1], (int(match[2]), int(match[3]))) for match in found if match]
    exact = [one for kind, one in codes if kind == "sm" and one[0] == capability[0] and one <= capability]
    if exact or not codes:
        return
    ptx = [one for kind, one in codes if kind == "compute" and one <= capability]
    wanted = _version(cuda)
    if ptx and (wanted is None or node.driver_cuda is None or node.driver_cuda >= wanted):
        return
    here = f"{gpu} has the capability {_dotted(capability)}, and {framework} has"
    if not ptx:
        raise Refusal(
            f"{here} no code for it, but for {', '.join(built)}. Take a size with another GPU, or an image with a "
            f"build for this one. {ON_CPU}"
        )
    assert wanted is not None  # noqa: S101  (or PTX would do)
    assert node.driver_cuda is not None  # noqa: S101
    raise Refusal(
        f"{here} for it only PTX of CUDA {_dotted(wanted)}, which a driver of CUDA {_dotted(node.driver_cuda)} "
        f"({node.driver or 'of an unknown version'}) cannot compile. Take a node with a newer driver, a size with "
        f"another GPU, or an image with CUDA's forward compatibility (cuda-compat). {ON_CPU}"
    )


def agree_on_devices(control: Control, launch: Launch, node: NodeGpus, count: int, identity: str) -> None:
    """Meet all ranks before the framework's group is made: a rank that refuses would leave the others waiting in it.

    Two numbers travel for each rank; names only where something is wrong or ranks see one GPU each.

    Args:
        control: the control plane.
        launch: this process's place; parameter servers do not come here.
        node: for the message.
        count: GPUs that this rank sees and can use; 0 for the CPU.
        identity: what tells this rank's GPU from all others.

    Raises:
        Refusal: on every rank, if any rank has refused, some compute on GPUs and others on CPUs, or two see one GPU.
    """
    timeout = control.start_timeout  # not that of a step: frameworks and drivers take their time at the start
    shares = 0 < count < launch.local_world_size
    on_gpu, sharing = control.meet("sum", "devices", timeout, [float(count > 0), float(shares)])
    if 0 < on_gpu < launch.world_size:
        kinds = control.meet("gather", "kinds of devices", timeout, count > 0)
        cpus = [rank for rank, gpu in enumerate(kinds) if not gpu]
        raise Refusal(
            f"{on_gpu:.0f} of {launch.world_size} ranks compute on GPUs and {len(cpus)} on the CPU (rank "
            f"{', '.join(map(str, cpus[:8]))}{' and more' if cpus[8:] else ''}): they cannot exchange tensors. Give "
            "all nodes the same machines and variables."
        )
    if sharing:
        twins = find_twins(control.meet("gather", "identities of devices", timeout, identity))
        if twins:
            raise Refusal(f"{twins}. {too_few_gpus(node, count, launch)}" if shares else twins)


def visible_identity(environ: Environ) -> str:
    """What tells apart the GPUs of ranks that see one each, as far as variables do: this host's name, and the GPU's."""
    return f"{socket.gethostname()}, {VISIBLE}={environ.get(VISIBLE, '')}"


def find_twins(identities: Sequence[str]) -> str:
    """The first two ranks that see the same GPU, in words; empty where none do. An empty identity is the CPU."""
    first: dict[str, int] = {}
    for rank, identity in enumerate(identities):
        if identity and first.setdefault(identity, rank) != rank:
            return f"ranks {first[identity]} and {rank} see the same GPU ({identity})"
    return ""


def _unusable(node: NodeGpus, framework: FrameworkGpus, number: int) -> str:
    """Why the GPUs of a node cannot be used, and what to do."""
    build = f"{framework.name} ({framework.built_for or 'built for CPUs alone'})"
    use = "cannot use them" if node.nvidia or node.wsl else "finds no GPU"
    return f"{node.in_words(number)}, and {build} {use}: {_reason(node, framework)} {ON_CPU}"


def _reason(node: NodeGpus, framework: FrameworkGpus) -> str:
    cuda = _version(framework.built_for.removeprefix("CUDA ")) if framework.built_for.startswith("CUDA ") else None
    if not framework.built_for:
        return f"it has no CUDA in it. {framework.remedy}"
    if cuda and node.amd and not node.nvidia:
        return "its GPUs are AMD's (/dev/kfd), which a build for CUDA cannot use. Take an image with a build for ROCm."
    if not node.nvidia and not node.wsl:
        return (
            "there is no device file /dev/nvidia0, so the driver of the node is not loaded, or the container was "
            "started without its GPUs. Look at the node's own logs, and start the container with --gpus all."
        )
    first = (node.visible or "").split(",")[0].strip()
    if first.isdecimal() and int(first) >= node.nvidia > 0:
        return f"{VISIBLE}={node.visible} names none of them. Name one from 0 to {node.nvidia - 1}, or unset it."
    if node.driver_cuda is None:
        return (
            "libcuda.so.1, the driver's library, cannot be loaded. Start the container with --gpus all, with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )
    if cuda and node.driver_cuda[0] < cuda[0]:
        oldest = OLDEST_DRIVERS.get(cuda[0])
        needs = f"a driver of the {oldest} series or newer" if oldest else "a newer driver"
        return f"CUDA {cuda[0]} needs {needs}. {framework.remedy}"
    return f"{framework.complaint or 'it does not say why'}. {framework.remedy}"


def _promised(context: str) -> str:
    """The GPUs that AZUREML_CR_COMPUTE_CONTEXT names: Azure ML's JSON with ``vm_size`` and ``gpu_count``."""
    try:
        found: Any = json.loads(context or "{}")
    except ValueError:
        return ""
    size, count = (found.get("vm_size"), found.get("gpu_count")) if isinstance(found, dict) else (None, None)
    if isinstance(size, str) and AZURE_GPU_SIZE.match(size):
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


def _version(text: str) -> tuple[int, int] | None:
    """The first two numbers of ``12.5.1``."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
