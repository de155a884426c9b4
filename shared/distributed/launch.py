"""Who is this process among the ranks, and who started it? One pure function of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shared.distributed.address import LOOPBACK, is_loopback, main_address, main_port
from shared.distributed.errors import LaunchError
from shared.distributed.families import (
    HOROVODRUN,
    MPI_FAMILIES,
    OVERRIDE,
    PLAIN,
    PMI,
    SLURM,
    TORCHRUN,
    Claim,
    Environ,
    is_there,
    read,
    whole_number,
)
from shared.distributed.tf_config import read_tf_config

AZURE_NAMES = {"pytorch": "azureml-pytorch", "openmpi": "azureml-mpi", "tensorflow": "azureml-tensorflow"}


@dataclass(frozen=True, slots=True)
class Launch:
    """A process's place in its world. All numbers start at 0; ranks are consecutive within a node.

    Attributes:
        rank: this process among all ranks.
        world_size: number of ranks (with TF_CONFIG: of workers).
        local_rank: this process among those of its node.
        local_world_size: processes on this node.
        node_rank: this node among the nodes.
        num_nodes: number of nodes.
        launcher: who started it: ``torchrun``, ``azureml-pytorch``, ``azureml-mpi``, ``slurm``, ..., ``single``.
        main_address: host of rank 0.
        main_port: the framework's port there; the control plane has the next one.
        role: ``worker``, or ``ps`` for a parameter server of TF_CONFIG, whose rank counts among the servers.
        num_ps: number of parameter servers beside the workers.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    num_nodes: int
    launcher: str
    main_address: str
    main_port: int
    role: str = "worker"
    num_ps: int = 0

    @property
    def control_port(self) -> int:
        """The control plane's port at the main address."""
        return self.main_port + 1

    @property
    def alone(self) -> bool:
        """Whether no other process takes part, so that no socket is needed."""
        return self.world_size == 1 and self.num_ps == 0


def detect(environ: Environ | None = None) -> Launch:
    """This process's place in its world, from one launcher's variables; a single process when there is none.

    In this order: ALLRANKS_RANK and its three sisters, torchrun, horovodrun, TF_CONFIG, RANK and WORLD_SIZE (Azure ML's
    PyTorch jobs), Open MPI, PMI (MPICH, Intel MPI), MVAPICH, a Slurm step.

    Raises:
        LaunchError: half of a launcher's variables, two launchers that disagree, numbers that contradict each other, or
            AZUREML_NODE_COUNT above 1 with no launcher: a silent single process would be one of several that overwrite
            each other's results.
    """
    environ = os.environ if environ is None else environ
    claims = _claims(environ)
    node_count = whole_number("AZUREML_NODE_COUNT", environ)
    if node_count is not None and node_count < 1:
        raise LaunchError(f"AZUREML_NODE_COUNT={node_count} has to be at least 1.")
    if not claims:
        return _single(environ, node_count)
    if claims[0].launcher == OVERRIDE.launcher:
        node_count = None  # the explicit word stands above all others
    launch = _launch(claims[0], node_count, environ)
    for other in claims[1:]:
        _check_agreement(claims[0], launch, other)
    return launch


def _claims(environ: Environ) -> list[Claim]:
    """What the launchers in effect say, the one that counts first."""
    for family in (OVERRIDE, TORCHRUN, HOROVODRUN):
        if is_there(family, environ):
            return [read(family, environ)]  # whatever else is set belongs to an outer launcher
    claims = list(_inner_claims(environ))
    if not claims and is_there(SLURM, environ):
        claim = read(SLURM, environ)
        claims.append(replace(claim, local_world_size=_slurm_tasks_per_node(environ)))
    return claims


def _inner_claims(environ: Environ) -> Iterator[Claim]:
    if environ.get("TF_CONFIG"):
        yield read_tf_config(environ)
    for family in (PLAIN, *MPI_FAMILIES):
        if is_there(family, environ):
            claim = read(family, environ)
            # Slurm's own PMI plugin sets PMI_RANK and PMI_SIZE without the local ones: that is a Slurm step.
            if family is PMI and claim.local_rank is None and is_there(SLURM, environ):
                continue
            yield claim


def _single(environ: Environ, node_count: int | None) -> Launch:
    if node_count is not None and node_count > 1:
        raise LaunchError(
            f"AZUREML_NODE_COUNT={node_count}, but no launcher's variables say which of the processes this is, so each "
            "node would train alone. Give the job a distribution (type: pytorch, mpi or tensorflow), or start the "
            "script with torchrun or mpirun."
        )
    return Launch(0, 1, 0, 1, 0, 1, "single", LOOPBACK, main_port(environ))


def _launch(claim: Claim, node_count: int | None, environ: Environ) -> Launch:
    """Fill in what the family leaves out, and check that the numbers fit together."""
    world_size = claim.world_size
    if node_count is not None and claim.by_node and world_size % node_count:
        raise LaunchError(
            f"{claim}, AZUREML_NODE_COUNT={node_count}: the number of processes is not a multiple of the number of "
            "nodes. Start the same number on every node."
        )
    local_world_size = _local_world_size(claim, claim.num_nodes or node_count, environ)
    num_nodes = claim.num_nodes or world_size // local_world_size
    node_rank = claim.rank // local_world_size if claim.node_rank is None else claim.node_rank
    local_rank = claim.rank - node_rank * local_world_size if claim.local_rank is None else claim.local_rank
    if claim.by_node:
        _check_arithmetic(claim, local_rank, local_world_size, node_rank, num_nodes)
    if node_count not in (None, num_nodes):
        raise LaunchError(
            f"{claim}: {num_nodes} node(s) take part, but AZUREML_NODE_COUNT={node_count}. "
            "Start the launcher for all nodes of the job."
        )
    on_azure = "AZUREML_RUN_ID" in environ or node_count is not None
    return Launch(
        claim.rank,
        world_size,
        local_rank,
        local_world_size,
        node_rank,
        num_nodes,
        AZURE_NAMES.get(claim.launcher, claim.launcher) if on_azure else claim.launcher,
        claim.main_host or main_address(environ, num_nodes),
        main_port(environ, claim.taken_ports),
        claim.role,
        claim.num_ps,
    )


def _local_world_size(claim: Claim, num_nodes: int | None, environ: Environ) -> int:
    if claim.local_world_size is not None:
        return claim.local_world_size
    if num_nodes is not None:
        return max(1, claim.world_size // num_nodes)
    address = environ.get("MASTER_ADDR", "").strip()
    here = not address or is_loopback(address)
    if claim.world_size == 1 or (here and claim.local_rank in (None, claim.rank) and claim.node_rank in (None, 0)):
        return claim.world_size
    raise LaunchError(
        f"{claim}: nothing says how many of the {claim.world_size} ranks are on this node. "
        "Set LOCAL_RANK and LOCAL_WORLD_SIZE, or AZUREML_NODE_COUNT."
    )


def _check_arithmetic(claim: Claim, local_rank: int, local_world_size: int, node_rank: int, num_nodes: int) -> None:
    if num_nodes * local_world_size != claim.world_size:
        raise LaunchError(
            f"{claim}: {num_nodes} node(s) times {local_world_size} process(es) on this one are not "
            f"{claim.world_size} ranks. Start the same number of processes on every node."
        )
    right = 0 <= local_rank < local_world_size and 0 <= node_rank < num_nodes
    if not right or claim.rank != node_rank * local_world_size + local_rank:
        raise LaunchError(
            f"{claim}: rank {claim.rank} is not node {node_rank} * {local_world_size} processes per node + local rank "
            f"{local_rank}. Ranks have to be numbered node by node (mpirun --map-by slot, srun --distribution=block)."
        )


def _check_agreement(claim: Claim, launch: Launch, other: Claim) -> None:
    """A second family says the same, or is the per-node MPI launch around this one."""
    names = ("rank", "world_size", "local_rank", "local_world_size", "role")
    if all(getattr(other, name) in (None, getattr(launch, name)) for name in names):
        return
    per_node = other.launcher in {family.launcher for family in MPI_FAMILIES} and other.local_world_size == 1
    if (
        claim.launcher == PLAIN.launcher
        and per_node
        and (launch.num_nodes, launch.node_rank) == (other.world_size, other.rank)
    ):
        return
    raise LaunchError(
        f"Two launchers disagree: {claim} ({claim.launcher}) and {other} ({other.launcher}). Unset the variables of "
        "the one that did not start this process, or set ALLRANKS_RANK, ALLRANKS_WORLD_SIZE, ALLRANKS_LOCAL_RANK and "
        "ALLRANKS_LOCAL_WORLD_SIZE."
    )


def _slurm_tasks_per_node(environ: Environ) -> int | None:
    """The number of tasks on each node, from ``4(x2)`` or ``4,4``; None when Slurm does not say."""
    name = "SLURM_STEP_TASKS_PER_NODE" if "SLURM_STEP_TASKS_PER_NODE" in environ else "SLURM_TASKS_PER_NODE"
    counts: Sequence[str] = re.findall(r"(?:^|,)(\d+)", environ.get(name, ""))
    if len(set(counts)) > 1:
        raise LaunchError(f"{name}={environ[name]}: the nodes have different numbers of tasks. Use --ntasks-per-node.")
    return int(counts[0]) if counts else None
