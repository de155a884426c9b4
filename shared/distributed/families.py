"""The variables with which each launcher tells a process who it is, as a table; one family is read as a whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from shared.distributed.errors import LaunchError

Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class VariableFamily:
    """One launcher's variables; each field lists the names that carry it, the first one that is set counts.

    Attributes:
        launcher: the name shown in logs.
        marks: the family is there as soon as one of these is set; whatever is then missing is an error.
        needed: the fields without which the family is only half there.
        permutes: whether local ranks may come in any order within a node: Open MPI 5 maps ranks to cores and counts
            local ranks along these, so that a plain ``mpirun -n 4`` has the local ranks 0, 2, 1, 3.
    """

    launcher: str
    marks: tuple[str, ...]
    rank: tuple[str, ...]
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_world_size: tuple[str, ...]
    node_rank: tuple[str, ...] = ()
    num_nodes: tuple[str, ...] = ()
    needed: tuple[str, ...] = ("rank", "world_size", "local_rank", "local_world_size")
    permutes: bool = False

    def is_set(self, environ: Environ) -> bool:
        """Whether any variable of the family is set."""
        return any(name in environ for name in self.marks)

    def read(self, environ: Environ) -> LaunchClaim:
        """Read all fields from the family's variables.

        Raises:
            LaunchError: a needed variable is missing, is no whole number, or is out of range.
        """
        found: dict[str, str] = {}
        values = {name: _field(getattr(self, name), environ, found) for name in _FIELDS}
        numbers = {name: value for name, value in values.items() if value is not None}
        missing = [" or ".join(getattr(self, name)) for name in self.needed if name not in numbers]
        if missing:
            seen = ", ".join(f"{name}={shortened(environ[name])}" for name in self.marks if name in environ)
            raise LaunchError(
                f"{seen}: only half of what {self.launcher} sets, without {', '.join(missing)}. "
                "Set the missing ones, or unset the others to run a single process."
            )
        claim = LaunchClaim(
            self.launcher,
            numbers["rank"],
            numbers["world_size"],
            numbers.get("local_rank"),
            numbers.get("local_world_size"),
            numbers.get("node_rank"),
            numbers.get("num_nodes"),
            found,
            permuted=self.permutes,
        )
        _check_ranges(claim, self)
        return claim


@dataclass(frozen=True, slots=True)
class LaunchClaim:
    """What one family says about this process; None where it says nothing.

    Attributes:
        variables: what was read, for error messages.
        by_node: whether ranks are numbered node by node, as every launcher but TF_CONFIG's user does.
        permuted: whether local ranks may come in any order within a node.
        main_host: rank 0's host, where the family itself names it.
        taken_ports: ports that the family gives to somebody else.
        num_ps: parameter servers beside the workers.
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    num_nodes: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    role: str = "worker"
    by_node: bool = True
    main_host: str | None = None
    taken_ports: frozenset[int] = frozenset()
    num_ps: int = 0
    permuted: bool = False

    def __str__(self) -> str:
        """Format what was read as ``RANK=5, WORLD_SIZE=8``."""
        return ", ".join(f"{name}={shortened(value)}" for name, value in self.variables.items())


def _family(launcher: str, rank: str, world_size: str, local_rank: str, local_world_size: str) -> VariableFamily:
    marks = (rank, world_size, local_rank, local_world_size)
    return VariableFamily(launcher, marks, (rank,), (world_size,), (local_rank,), (local_world_size,))


OVERRIDE = _family(
    "override", "ALLRANKS_RANK", "ALLRANKS_WORLD_SIZE", "ALLRANKS_LOCAL_RANK", "ALLRANKS_LOCAL_WORLD_SIZE"
)
TORCHRUN = VariableFamily(
    "torchrun",
    marks=("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    rank=("RANK",),
    world_size=("WORLD_SIZE",),
    local_rank=("LOCAL_RANK",),
    local_world_size=("LOCAL_WORLD_SIZE",),
    node_rank=("GROUP_RANK",),  # NODE_RANK is Azure ML's and survives; the agents may have met in another order
    num_nodes=("GROUP_WORLD_SIZE",),
)
HOROVODRUN = VariableFamily(
    "horovodrun",
    marks=("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    rank=("HOROVOD_RANK",),
    world_size=("HOROVOD_SIZE",),
    local_rank=("HOROVOD_LOCAL_RANK",),
    local_world_size=("HOROVOD_LOCAL_SIZE",),
    node_rank=("HOROVOD_CROSS_RANK",),
    num_nodes=("HOROVOD_CROSS_SIZE",),
)
PLAIN_PYTORCH = VariableFamily(
    "pytorch",
    marks=("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    rank=("RANK",),
    world_size=("WORLD_SIZE",),
    local_rank=("LOCAL_RANK",),
    local_world_size=("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),  # the second is of DeepSpeed's launcher
    node_rank=("NODE_RANK", "AZUREML_CR_NODE_RANK"),
    needed=("rank", "world_size"),  # Azure ML never sets LOCAL_WORLD_SIZE
)
# OMPI_COMM_WORLD_NODE_RANK is no node index: it is the rank inside the node, so it is not in the table.
OPEN_MPI = replace(
    _family(
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    permutes=True,
)
SLURM = VariableFamily(
    "slurm",
    marks=("SLURM_STEP_ID",),  # an allocation without a step has SLURM_NTASKS too, and is no launch
    rank=("SLURM_PROCID",),
    world_size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    local_rank=("SLURM_LOCALID",),
    local_world_size=(),
    node_rank=("SLURM_NODEID",),
    num_nodes=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
    needed=("rank", "world_size", "local_rank"),
)
_FIELDS = ("rank", "world_size", "local_rank", "local_world_size", "node_rank", "num_nodes")
SOLE_FAMILIES = (OVERRIDE, TORCHRUN, HOROVODRUN)
"""The first that is set counts alone: whatever else is set belongs to an outer launcher."""

AGREEING_FAMILIES = (PLAIN_PYTORCH, OPEN_MPI)
"""All that are set have to agree, and the first counts."""

OTHER_LAUNCHERS = re.compile(
    r"PMIX?_RANK|PMI_SIZE|MPI_LOCALN?RANK(ID|S)|(MV2|MVP)_COMM_WORLD_(LOCAL_)?(RANK|SIZE)"
    r"|FLUX_(TASK_RANK|JOB_SIZE|TASK_LOCAL_ID|JOB_NNODES)|PALS_(LOCAL_)?RANKID|SM_HOSTS|SM_CURRENT_HOST"
)
"""Variables of launchers that are not read: PMI (MPICH, Intel MPI), PMIx, MVAPICH, Flux, PALS, SageMaker."""


def whole_number(name: str, environ: Environ) -> int | None:
    """The variable as an integer, or None if it is not set.

    Raises:
        LaunchError: it is set to something else.
    """
    text = environ.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text.strip()):
        raise LaunchError(f"{name}={shortened(text)} is not a whole number. Correct it or unset it.")
    return int(text)


def shortened(value: str, limit: int = 120) -> str:
    """The value as an error message shows it: quoted when empty or spaced, cut when long."""
    text = value if value and not re.search(r"\s", value) else repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def _field(names: Sequence[str], environ: Environ, found: dict[str, str]) -> int | None:
    for name in names:
        number = whole_number(name, environ)
        if number is not None:
            found[name] = environ[name]
            return number
    return None


def _check_ranges(claim: LaunchClaim, family: VariableFamily) -> None:
    """Every index lies below its count, and every count is at least one."""
    pairs = (("rank", "world_size"), ("local_rank", "local_world_size"), ("node_rank", "num_nodes"))
    for index_name, count_name in pairs:
        index, count = getattr(claim, index_name), getattr(claim, count_name)
        if count is not None and count < 1:
            raise LaunchError(f"{claim}: {_names(family, count_name)} has to be at least 1.")
        if index is not None and (index < 0 or (count is not None and index >= count)):
            limit = "" if count is None else f" and below {_names(family, count_name)}, {count}"
            raise LaunchError(f"{claim}: {_names(family, index_name)} has to be at least 0{limit}.")


def _names(family: VariableFamily, name: str) -> str:
    return " or ".join(getattr(family, name))
