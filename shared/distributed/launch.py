"""Who is this process among the ranks, and who started it? One pure function of the environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.distributed import families
from shared.distributed.address import LOOPBACK_ADDRESS, host_of, is_loopback, main_address, main_port
from shared.distributed.errors import LaunchError
from shared.distributed.families import Environ, LaunchClaim, shortened, whole_number

NODE_BY_NODE = "Ranks have to be numbered node by node (mpirun --map-by slot, srun --distribution=block)."
_INSTEAD = (
    "Start the script with mpirun, torchrun or srun, which say all, or set ALLRANKS_RANK, ALLRANKS_WORLD_SIZE, "
    "ALLRANKS_LOCAL_RANK and ALLRANKS_LOCAL_WORLD_SIZE on each process."
)
_OTHER_RANKS = ("PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK", "FLUX_TASK_RANK", "PALS_RANKID")
_OTHER_SIZES = ("PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE", "FLUX_JOB_SIZE")
_AZURE_NAMES = {"pytorch": "azureml-pytorch", "openmpi": "azureml-mpi", "tensorflow": "azureml-tensorflow"}


@dataclass(frozen=True, slots=True)
class Launch:
    """A process's place in its world. All numbers start at 0; the ranks of a node are consecutive.

    Attributes:
        rank: this process among all ranks.
        world_size: number of ranks (with TF_CONFIG: of workers).
        local_rank: this process among those of its node; under Open MPI not always in the order of the ranks.
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
    PyTorch jobs), Open MPI, a Slurm step. Variables of other launchers (`families.OTHER_LAUNCHERS`) are refused unless
    one of these gives the same place.

    Raises:
        LaunchError: half of a launcher's variables, two launchers that disagree, numbers that contradict each other, or
            signs of other processes with no launcher that counts them (AZUREML_NODE_COUNT above 1, PMI_RANK,
            AZ_BATCH_NODE_LIST and its like): a silent single process would be one of several that overwrite each
            other's results.
    """
    environ = os.environ if environ is None else environ
    claims = _claims(environ)
    node_count = whole_number("AZUREML_NODE_COUNT", environ)
    if node_count is not None and node_count < 1:
        raise LaunchError(f"AZUREML_NODE_COUNT={node_count} has to be at least 1.")
    if not claims:
        _check_other_launchers(environ, None)
        return _single(environ, node_count)
    if claims[0].launcher == families.OVERRIDE.launcher or _has_fewer_nodes(claims[0], node_count, environ):
        node_count = None  # the explicit word stands above all others, and so does a torchrun that has lost nodes
    claim = _completed(claims[0], claims[1:])
    launch = _launch(claim, node_count, environ)
    for other in claims[1:]:
        _check_agreement(claim, launch, other)
    if claim.launcher not in {family.launcher for family in families.SOLE_FAMILIES}:
        _check_other_launchers(environ, launch)
    return launch


def _has_fewer_nodes(claim: LaunchClaim, node_count: int | None, environ: Environ) -> bool:
    """Whether torchrun goes on with some of the job's nodes, as ``--nnodes MIN:MAX`` lets it.

    It does not say so; but those that have the id of the job have met as its nodes, at one place. A torchrun that was
    started on each node for itself has another id.
    """
    of_job = environ.get("TORCHELASTIC_RUN_ID") == environ.get("AZUREML_RUN_ID", "")
    is_torchrun = claim.launcher == families.TORCHRUN.launcher
    return is_torchrun and of_job and (claim.num_nodes or 0) < (node_count or 0)


def _claims(environ: Environ) -> list[LaunchClaim]:
    """What the launchers in effect say, the one that counts first."""
    for family in families.SOLE_FAMILIES:
        if family.is_set(environ):
            return [family.read(environ)]
    claims = list(_inner_claims(environ))
    if not claims and families.SLURM.is_set(environ):
        claim = families.SLURM.read(environ)
        claims.append(replace(claim, local_world_size=_slurm_tasks_per_node(environ)))
    return claims


def _inner_claims(environ: Environ) -> Iterator[LaunchClaim]:
    if environ.get("TF_CONFIG"):
        yield read_tf_config(environ)
    for family in families.AGREEING_FAMILIES:
        if family.is_set(environ):
            yield family.read(environ)


def _completed(claim: LaunchClaim, others: Sequence[LaunchClaim]) -> LaunchClaim:
    """The claim, with the local ranks of an Open MPI around it whose ranks were given on as RANK and WORLD_SIZE."""
    for other in others:
        if other.permuted and (other.rank, other.world_size) == (claim.rank, claim.world_size):
            local_rank = other.local_rank if claim.local_rank is None else claim.local_rank
            local_world_size = claim.local_world_size or other.local_world_size
            return replace(claim, local_rank=local_rank, local_world_size=local_world_size, permuted=True)
    return claim


def _single(environ: Environ, node_count: int | None) -> Launch:
    if node_count is not None and node_count > 1:
        raise LaunchError(
            f"AZUREML_NODE_COUNT={node_count}, but no launcher's variables say which of the processes this is, so each "
            "node would train alone. Give the job a distribution (type: pytorch, mpi or tensorflow), or start the "
            "script with torchrun or mpirun."
        )
    _check_alone_on_azure(environ)
    return Launch(0, 1, 0, 1, 0, 1, "single", LOOPBACK_ADDRESS, main_port(environ))


def _check_other_launchers(environ: Environ, launch: Launch | None) -> None:
    """Refuse variables of a launcher that is not read, unless `launch` has their ranks and sizes.

    Slurm's PMI plugins set PMI_RANK and PMI_SIZE, and an MPI launch of one process per node may be around RANK and
    WORLD_SIZE.
    """
    names = [name for name in sorted(environ) if families.OTHER_LAUNCHERS.fullmatch(name)]
    if launch is None:
        foreign = names
    else:
        ranks, sizes = {str(launch.rank), str(launch.node_rank)}, {str(launch.world_size), str(launch.num_nodes)}
        wrong_ranks = [name for name in names if name in _OTHER_RANKS and environ[name] not in ranks]
        foreign = wrong_ranks + [name for name in names if name in _OTHER_SIZES and environ[name] not in sizes]
    if foreign:
        raise LaunchError(
            f"{_shown(foreign, environ)}: a launcher that allranks does not read has started this process. Azure ML, "
            f"torchrun, Slurm, Open MPI and horovodrun are read. {_INSTEAD}"
        )


def _check_alone_on_azure(environ: Environ) -> None:
    """Azure Batch and the first version of Azure ML name the nodes of a job, whoever starts what on them."""
    lists = ("AZ_BATCH_NODE_LIST", "AZ_BATCH_HOST_LIST", "AZ_BATCHAI_WORKER_HOSTS")
    several = [name for name in lists if len(re.findall(r"[^;,\s]+", environ.get(name, ""))) > 1]
    index = whole_number("AZ_BATCHAI_TASK_INDEX", environ)
    if several or index:
        names = [name for name in ("AZ_BATCHAI_TASK_INDEX", *several) if name in environ]
        raise LaunchError(
            f"{_shown(names, environ)}: the job has several nodes, but no launcher's variables say which of the "
            f"processes this is, so each node would train alone. {_INSTEAD}"
        )


def _shown(names: Sequence[str], environ: Environ) -> str:
    return ", ".join(f"{name}={shortened(environ[name])}" for name in names)


def _launch(claim: LaunchClaim, node_count: int | None, environ: Environ) -> Launch:
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
        remedy = "Start the launcher for all nodes of the job."
        if claim.launcher == families.TORCHRUN.launcher:
            remedy += ' Where torchrun may do with fewer (--nnodes MIN:MAX), give it --rdzv_id "$AZUREML_RUN_ID".'
        raise LaunchError(f"{claim}: {num_nodes} node(s) take part, but AZUREML_NODE_COUNT={node_count}. {remedy}")
    on_azure = "AZUREML_RUN_ID" in environ or node_count is not None
    return Launch(
        claim.rank,
        world_size,
        local_rank,
        local_world_size,
        node_rank,
        num_nodes,
        _AZURE_NAMES.get(claim.launcher, claim.launcher) if on_azure else claim.launcher,
        claim.main_host or main_address(environ, num_nodes),
        main_port(environ, claim.taken_ports, claim.launcher),
        claim.role,
        claim.num_ps,
    )


def _local_world_size(claim: LaunchClaim, num_nodes: int | None, environ: Environ) -> int:
    if claim.local_world_size is not None:
        return claim.local_world_size
    if num_nodes is not None:
        return max(1, claim.world_size // num_nodes)
    address = environ.get("MASTER_ADDR", "").strip()
    here = not address or is_loopback(address)
    if claim.world_size == 1 or (here and claim.local_rank in (None, claim.rank) and claim.node_rank in (None, 0)):
        return claim.world_size
    if families.SLURM.is_set(environ) and (tasks := _slurm_tasks_per_node(environ)):
        return tasks
    if nodes := _whole_nodes(environ.get("PET_NNODES", ""), claim.world_size):
        return claim.world_size // nodes
    missing = "LOCAL_WORLD_SIZE" if claim.local_rank is not None else "LOCAL_RANK and LOCAL_WORLD_SIZE"
    raise LaunchError(
        f"{claim}: nothing says how many of the {claim.world_size} ranks are on this node. "
        f"Set {missing}, or AZUREML_NODE_COUNT."
    )


def _whole_nodes(text: str, world_size: int) -> int:
    """Return the number of nodes that Kubeflow's PET_NNODES states; 0 for a range, and where it divides no world."""
    nodes = int(text) if text.isdecimal() else 0
    return nodes if nodes and world_size % nodes == 0 else 0


def _check_arithmetic(
    claim: LaunchClaim, local_rank: int, local_world_size: int, node_rank: int, num_nodes: int
) -> None:
    if num_nodes * local_world_size != claim.world_size:
        raise LaunchError(
            f"{claim}: {num_nodes} node(s) times {local_world_size} process(es) on this one are not "
            f"{claim.world_size} ranks. Start the same number of processes on every node."
        )
    right = 0 <= local_rank < local_world_size and 0 <= node_rank < num_nodes
    # Whether each of the permuted local ranks is there once shows when all ranks have met (`Assembly`).
    position = claim.rank % local_world_size if claim.permuted else local_rank
    if not right or claim.rank != node_rank * local_world_size + position:
        raise LaunchError(
            f"{claim}: rank {claim.rank} is not node {node_rank} * {local_world_size} processes per node + local rank "
            f"{local_rank}. {NODE_BY_NODE}"
        )


def _check_agreement(claim: LaunchClaim, launch: Launch, other: LaunchClaim) -> None:
    """A second family says the same, or is the per-node MPI launch around this one."""
    names = ("rank", "world_size", "local_rank", "local_world_size", "role")
    if all(getattr(other, name) in (None, getattr(launch, name)) for name in names):
        return
    per_node = other.launcher == families.OPEN_MPI.launcher and other.local_world_size == 1
    if (
        claim.launcher == families.PLAIN_PYTORCH.launcher
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


_TASKS = ("chief", "worker", "ps")


def read_tf_config(environ: Environ) -> LaunchClaim:
    """This process's place in TF_CONFIG: the chief, if there is one, is rank 0, and the workers follow it.

    A parameter server has ``role="ps"``, its rank among the servers, and the number of workers as its world size. Local
    ranks are positions among the entries of the same task and host.

    Raises:
        LaunchError: it is no JSON, has no workers, or its task is not in its cluster.
    """
    text = environ["TF_CONFIG"]
    cluster, task, index = _parse(text)
    workers = [*cluster["chief"], *cluster["worker"]]
    if not workers:
        raise _wrong(text, "cluster.worker names no process")
    if index >= len(cluster[task]):
        raise _wrong(text, f"task.index is {index} and cluster.{task} has {len(cluster[task])} entries")
    peers = cluster["ps"] if task == "ps" else workers
    rank = index + (len(cluster["chief"]) if task == "worker" else 0)
    peer_hosts = [host_of(entry) for entry in peers]
    hosts = list(dict.fromkeys(host_of(entry) for entry in [*workers, *cluster["ps"]]))
    return LaunchClaim(
        launcher="tensorflow",
        rank=rank,
        world_size=len(workers),
        local_rank=peer_hosts[:rank].count(peer_hosts[rank]),
        local_world_size=peer_hosts.count(peer_hosts[rank]),
        node_rank=hosts.index(peer_hosts[rank]),
        num_nodes=len(hosts),
        variables={"TF_CONFIG": text},
        role="ps" if task == "ps" else "worker",
        by_node=False,
        main_host=host_of(workers[0]),
        taken_ports=frozenset(_ports([*workers, *cluster["ps"]])),
        num_ps=len(cluster["ps"]),
    )


def _parse(text: str) -> tuple[Mapping[str, Sequence[str]], str, int]:
    """The cluster's lists, the task's type and its index."""
    try:
        data: object = json.loads(text)
    except ValueError as error:
        raise _wrong(text, f"it is not JSON ({error})") from None
    cluster = data.get("cluster") if isinstance(data, dict) else None
    task = data.get("task") if isinstance(data, dict) else None
    if not isinstance(cluster, dict) or not isinstance(task, dict):
        raise _wrong(text, 'it needs "cluster" and "task"')
    lists = {name: cluster.get(name) or [] for name in _TASKS}
    for name, entries in lists.items():
        if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
            raise _wrong(text, f"cluster.{name} has to be a list of host:port")
    kind, index = task.get("type"), task.get("index", 0)
    if kind not in _TASKS:
        raise _wrong(text, f"task.type is {kind!r}, and it has to be one of {', '.join(_TASKS)}")
    if isinstance(index, bool) or not isinstance(index, int | str) or not str(index).isdecimal():
        raise _wrong(text, f"task.index is {index!r}, and it has to be a whole number from 0")
    return lists, kind, int(index)


def _ports(entries: Sequence[str]) -> list[int]:
    ends = [entry.rpartition(":")[2] for entry in entries]
    return [int(end) for end in ends if end.isdecimal()]


def _wrong(text: str, reason: str) -> LaunchError:
    return LaunchError(f"TF_CONFIG={shortened(text, 300)}: {reason}. Correct it or unset it.")
