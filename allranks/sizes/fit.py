"""Does a step fit the machines that it asks for? Found before they cost anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from allranks.catalogue import environment_of
from allranks.sizes.builds import judge_image
from allranks.sizes.table import VMSize, find_size, with_infiniband

_LAUNCHER = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|accelerate\s+launch|deepspeed|horovodrun|mpirun|mpiexec)\b"
)

_SIZE = "resources.instance_type"
NODES_KEY = "resources.instance_count"
PROCESSES_KEY = "distribution.process_count_per_instance"
_VARIABLES = "environment_variables"


@dataclass(frozen=True, slots=True)
class MachineUse:
    """What a step asks of its machines; None where a number is known only when it runs.

    Processes are the ranks that Azure ML or the component's launcher starts on each; with ``gpu_per_rank`` each needs a
    GPU of its own. A command with a launcher in it starts further processes itself. Of environments only the library's
    are judged.
    """

    size: str
    nodes: int | None = None
    processes: int | None = None
    gpu_per_rank: bool = False
    command: str = ""
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    environment: str = ""


class Misfit(NamedTuple):
    """One thing that does not fit.

    Attributes:
        where: the setting at fault, as a dotted path of the step's YAML.
        severity: ``error`` for what cannot work, ``warning`` for what wastes money or time.
    """

    where: str
    message: str
    hint: str
    severity: str = "warning"


def find_misfits(use: MachineUse) -> Iterator[Misfit]:
    """Yield what is wrong with a step's machines; nothing for a size that the table does not have."""
    size = find_size(use.size)
    if size is None:
        if full := find_size(f"Standard_{use.size}"):
            yield Misfit(_SIZE, f"{use.size!r} is short for a size.", f"Write {full.name}.")
        return
    if size.retired:
        message = f"{size.name} was retired on {size.retired}; Azure has none any more."
        yield Misfit(_SIZE, message, "See the sizes of today in docs/sizes.md.")
    yield from _image(use, size)
    yield from _processes(use, size)
    yield from _network(use, size)
    yield from _variables(use, size)


def _image(use: MachineUse, size: VMSize) -> Iterator[Misfit]:
    image = environment_of(use.environment)
    if image is None:
        return
    verdict = judge_image(image, size)
    if not verdict.suits:
        message = f"the environment {image!r} does not suit {size.name}: {verdict.reason}."
        yield Misfit(_SIZE, message, "Take another size (docs/sizes.md), or an environment of yours.", "error")
    elif verdict.reason:
        older = "and Azure's hosts have some that are older"
        message = f"the environment {image!r} on {size.name}: {verdict.reason}, {older}."
        yield Misfit(_SIZE, message, "It ends at its start where the driver is older; check_cluster shows the driver.")


def _processes(use: MachineUse, size: VMSize) -> Iterator[Misfit]:
    if not size.gpus or use.processes is None or not use.gpu_per_rank:
        return
    have = f"{size.name} has {size.gpus} {size.gpu} GPU{'' if size.gpus == 1 else 's'}"
    if use.processes > size.gpus:
        message = f"{use.processes} processes on each node, and {have}: each rank needs a GPU of its own."
        yield Misfit(PROCESSES_KEY, message, f"Set {size.gpus}, or take a size with more GPUs.", "error")
    elif use.processes < size.gpus and not (use.processes == 1 and _LAUNCHER.search(use.command)):
        processes = f"{use.processes} process{'' if use.processes == 1 else 'es'} on each node"
        message = f"{processes}, and {have}: {size.gpus - use.processes} would be paid for and idle."
        yield Misfit(PROCESSES_KEY, message, f"Set {size.gpus}.")


def _network(use: MachineUse, size: VMSize) -> Iterator[Misfit]:
    if not size.gpus or size.infiniband or use.nodes is None or use.nodes < 2:
        return
    better = with_infiniband(size)
    hint = f"{better.name} has {better.infiniband} Gb/s of it." if better else "docs/sizes.md lists others."
    what = (
        "whose InfiniBand is of the older kind without SR-IOV, which NCCL cannot use"
        if size.has_unusable_rdma
        else "which has no InfiniBand"
    )
    yield Misfit(NODES_KEY, f"{use.nodes} nodes of {size.name}, {what}: gradients travel over Ethernet.", hint)


def _variables(use: MachineUse, size: VMSize) -> Iterator[Misfit]:
    none = f"and {size.name} has none that NCCL can use"
    for name, value in use.variables.items():
        where = f"{_VARIABLES}.{name}"
        disabled = name == "NCCL_IB_DISABLE" and value == "1"
        if size.infiniband:
            if disabled and (use.nodes or 1) > 1:
                message = f"{name}=1 switches off the {size.infiniband} Gb/s of InfiniBand that {size.name} has."
                yield Misfit(where, message, "Leave the variable out.")
        elif name == "NCCL_NET" and value.upper() == "IB":
            yield Misfit(where, f"{name}={value} asks for InfiniBand, {none}.", _TAKE, "error")
        elif name.startswith("NCCL_IB_") and not disabled:
            yield Misfit(where, f"{name} is about InfiniBand, {none}: it has no effect.", _TAKE)


_TAKE = "Leave the variable out, or take a size with InfiniBand: docs/sizes.md lists them."
