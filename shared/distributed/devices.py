"""Which device a rank computes on: a GPU that is there, or an error; the CPU where there is none or somebody says so.

A framework that cannot use a GPU takes the CPU, with a warning at most, and the bill is that of the GPU. So what speaks
for GPUs is read from the node itself, and compared with what the framework can use. No framework is imported here.
"""

from __future__ import annotations

import ctypes
import json
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from shared.distributed.control import Control
from shared.distributed.errors import Refusal
from shared.distributed.families import Environ
from shared.distributed.launch import Launch

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


Toolkit: TypeAlias = Literal["CUDA", "ROCm", ""]
_ON_CPU = f"To compute on the CPU all the same, set {VISIBLE_GPUS}=-1."
_OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest series of drivers for each major version of CUDA, whatever its minor version.

https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""


@dataclass(frozen=True, slots=True)
class FrameworkGpus:
    """What a framework says of the GPUs: how many it can use, and its own `complaint` if it can use none.

    The toolkit is empty for a build for CPUs alone; its version, such as ``12.6``, where it is not known. The `remedy`
    is a sentence that says how to get a build that drivers and GPUs of today's nodes suit.
    """

    name: str
    toolkit: Toolkit
    version: str
    count: int
    remedy: str
    complaint: str = ""


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
    raise Refusal(_too_few_gpus(node, framework.count, launch))


def _too_few_gpus(node: NodeGpus, count: int, launch: Launch) -> str:
    """The arithmetic of more ranks than GPUs on a node."""
    wanted = launch.local_world_size
    visible = f" ({VISIBLE_GPUS}={node.visible})" if node.visible is not None else ""
    return (
        f"{wanted} processes on node {launch.node_rank}, but {count} GPU(s){visible}: {wanted - count} too few. "
        f"Start at most {count} process(es) per node, or let each process see one GPU of its own. {_ON_CPU}"
    )


def check_kernels(
    framework: str, gpu: str, capability: tuple[int, int], built: Sequence[str], cuda: str, node: NodeGpus
) -> None:
    """See that a build has code for a GPU: a framework only warns, and fails at the first kernel.

    Machine code (``sm_80``) runs on GPUs of the same generation that are as new or newer; PTX (``compute_90``) on every
    newer one, if the driver knows the CUDA that wrote it.

    The GPU has a `capability` such as (9, 0); the framework is `built` with code for these (empty where it does not
    say) and with a version of CUDA.

    Raises:
        Refusal: there is no code that this GPU and this driver can run.
    """
    found = [re.match(r"(sm|compute)_(\d+)(\d)[a-z]?$", name) for name in built]
    codes = [(match[1], (int(match[2]), int(match[3]))) for match in found if match]
    exact = any(kind == "sm" and one[0] == capability[0] and one <= capability for kind, one in codes)
    if exact or not codes:
        return
    here = f"{gpu} has the capability {dotted(capability)}, and {framework} has"
    if not any(kind == "compute" and one <= capability for kind, one in codes):
        raise Refusal(
            f"{here} no code for it, but for {', '.join(built)}. Take a size with another GPU, or an image with a "
            f"build for this one. {_ON_CPU}"
        )
    wanted = _version(cuda)
    if wanted is not None and node.driver_cuda is not None and node.driver_cuda < wanted:
        raise Refusal(
            f"{here} for it only PTX of CUDA {dotted(wanted)}, which a driver of CUDA {dotted(node.driver_cuda)} "
            f"({node.driver or 'of an unknown version'}) cannot compile. Take a node with a newer driver, a size with "
            f"another GPU, or an image with CUDA's forward compatibility (cuda-compat). {_ON_CPU}"
        )


def agree_on_devices(control: Control, launch: Launch, node: NodeGpus, count: int, identity: str) -> None:
    """Meet all ranks before the framework's group is made: a rank that refuses would leave the others waiting in it.

    Two numbers travel for each rank; names only where something is wrong or ranks see one GPU each. Parameter servers
    do not come here. `count` is of the GPUs that this rank sees and can use, 0 for the CPU, and `identity` tells its
    GPU from all others.

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
            raise Refusal(f"{twins}. {_too_few_gpus(node, count, launch)}" if shares else twins)


def visible_identity(environ: Environ) -> str:
    """What tells apart the GPUs of ranks that see one each, as far as variables do: this host's name, and the GPU's."""
    return f"{socket.gethostname()}, {VISIBLE_GPUS}={environ.get(VISIBLE_GPUS, '')}"


def find_twins(identities: Sequence[str]) -> str:
    """The first two ranks that see the same GPU, in words; empty where none do. An empty identity is the CPU."""
    first: dict[str, int] = {}
    for rank, identity in enumerate(identities):
        if identity and first.setdefault(identity, rank) != rank:
            return f"ranks {first[identity]} and {rank} see the same GPU ({identity})"
    return ""


def _unusable(node: NodeGpus, framework: FrameworkGpus, number: int) -> str:
    """Why the GPUs of a node cannot be used, and what to do."""
    built_for = f"{framework.toolkit} {framework.version}".rstrip() or "built for CPUs alone"
    build = f"{framework.name} ({built_for})"
    use = "cannot use them" if node.nvidia or node.wsl else "finds no GPU"
    return f"{node.in_words(number)}, and {build} {use}: {_reason(node, framework)} {_ON_CPU}"


def _reason(node: NodeGpus, framework: FrameworkGpus) -> str:
    cuda = _version(framework.version) if framework.toolkit == "CUDA" else None
    if not framework.toolkit:
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
        return f"{VISIBLE_GPUS}={node.visible} names none of them. Name one from 0 to {node.nvidia - 1}, or unset it."
    if node.driver_cuda is None:
        return (
            "libcuda.so.1, the driver's library, cannot be loaded. Start the container with --gpus all, with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )
    if cuda and node.driver_cuda[0] < cuda[0]:
        oldest = _OLDEST_DRIVERS.get(cuda[0])
        needs = f"a driver of the {oldest} series or newer" if oldest else "a newer driver"
        return f"CUDA {cuda[0]} needs {needs}. {framework.remedy}"
    return f"{framework.complaint or 'it does not say why'}. {framework.remedy}"


def _version(text: str) -> tuple[int, int] | None:
    """The first two numbers of ``12.5.1``."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None
