"""Which device a rank computes on: a GPU that is there, or an error; the CPU where there is none or somebody says so.

A framework that cannot use a GPU takes the CPU, with a warning at most, and the bill is that of the GPU. So what speaks
for GPUs is read from the node itself, and compared with what the framework can use. No framework is imported here.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.distributed.control import Control
from shared.distributed.errors import Refusal
from shared.distributed.families import Environ
from shared.distributed.launch import Launch
from shared.distributed.node_gpus import VISIBLE_GPUS, NodeGpus, dotted

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
