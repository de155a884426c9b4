"""The variables that a rank starts with: the caller's own, less any launcher's, and those that Azure ML sets.

Gathered from the product's documentation and from jobs that printed their environment. What a launcher adds for each
rank stands in ``launch/``. The deviations from the cloud are listed in docs/local-engine.md.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# What some launcher set for the engine itself must not reach a step: it would be taken for the step's own launch.
_LAUNCHER_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "MASTER_ADDRESS"),
    *("TF_CONFIG", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SM_HOSTS", "SM_CURRENT_HOST"),
    *("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_EXPERIMENT_ID"),
    *("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4"),
    *("MLFLOW_REGISTRY_URI", "MLFLOW_RUN_CONTEXT", "MLFLOW_WORKSPACE"),
    *("MLFLOW_EXPERIMENT_NAME", "OMP_NUM_THREADS", "PYTHONPATH", "PYTHONHOME", "TMPDIR"),
)
_LAUNCHER_PREFIXES = (
    *("AZUREML_", "AZURE_ML_", "AZ_BATCH", "ALLRANKS_", "TORCHELASTIC_", "PET_"),
    *("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_"),
    *("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "I_MPI_", "MV2_COMM_", "MVP_COMM_", "SLURM_", "FLUX_TASK_"),
    *("FLUX_JOB_", "PALS_"),
)

_PASSED_ON = frozenset({"ALLRANKS_DATA_BUDGET"})
"""Of the engine's own names: a limit of on-node code, which its message asks to raise."""

_SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
_EXPERIMENT_SCOPE = (
    "/subscriptions/{subscription}/resourceGroups/local/providers/Microsoft.MachineLearningServices/workspaces/local"
    "/experiments/{experiment}"
)


@dataclass(frozen=True, slots=True)
class EmulatedCluster:
    """The emulated nodes of one step.

    Node ``i`` has the loopback address ``127.0.0.(i + 1)``: its own, as on a cluster, and reached from nowhere else.

    Attributes:
        nodes: number of nodes.
        processes: ranks on each node.
        port: the main port; the one above it is free as well, and for TensorFlow one for each process.
        threads: OMP_NUM_THREADS of each rank.
        devices: CUDA_VISIBLE_DEVICES of each node, or None to leave it alone.
        parameter_servers: TensorFlow only.
    """

    nodes: int
    processes: int
    port: int
    threads: int
    devices: tuple[str, ...] | None = None
    parameter_servers: int = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of each node."""
        return _addresses(self.nodes)


@functools.lru_cache
def _addresses(nodes: int) -> tuple[str, ...]:
    return tuple(f"127.0.{node // 250}.{node % 250 + 1}" for node in range(nodes))


@functools.lru_cache
def _address_list(nodes: int, separator: str) -> str:
    """All addresses in one text, which the ranks of a large step share."""
    return separator.join(_addresses(nodes))


def inherited_variables(environ: Mapping[str, str], python: Path) -> dict[str, str]:
    """The caller's variables that a step keeps; its ``python`` is the chosen interpreter."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in _PASSED_ON or (name not in _LAUNCHER_VARIABLES and not name.startswith(_LAUNCHER_PREFIXES))
    }
    return kept | {"PATH": f"{python.parent}:{environ.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"}


def job_variables(run_id: str, experiment: str, attempt: int) -> dict[str, str]:
    """What says which job this is, without what ``tracking/`` adds. ``attempt`` counts from 1."""
    return {
        "AZUREML_ROOT_RUN_ID": run_id,
        "AZUREML_EXPERIMENT_SCOPE": _EXPERIMENT_SCOPE.format(subscription=_SUBSCRIPTION, experiment=experiment),
        "AZUREML_ARM_SUBSCRIPTION": _SUBSCRIPTION,
        "AZUREML_ARM_RESOURCEGROUP": "local",
        "AZUREML_ARM_WORKSPACE_NAME": "local",
        "AZUREML_ARM_PROJECT_NAME": experiment,
        "AZUREML_CR_COMPUTE_CONTEXT": json.dumps(
            {"run_attempt_count": attempt, "vm_size": "local", "vm_priority": "dedicated"}
        ),
    }


def data_variables(
    literals: Mapping[str, str], inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> dict[str, str]:
    """What says where the data is; the names of outputs never replace a variable that the shell needs."""
    variables = {f"AZUREML_PARAMETER_{name}": value for name, value in literals.items()}
    for name, path in inputs.items():
        variables |= {f"AZURE_ML_INPUT_{name}": path, f"AZUREML_DATAREFERENCE_{name}": path}
    for name, path in outputs.items():
        variables |= {f"AZURE_ML_OUTPUT_{name}": path}
        if name not in {"PATH", "HOME", "USER", "SHELL", "LANG", "TMPDIR", "PWD"}:
            variables[name] = path
    return variables


def proxy_exceptions(environ: Mapping[str, str], hosts: Iterable[str]) -> dict[str, str]:
    """What keeps programs from asking a proxy, if the user has one, for these hosts; TensorFlow's servers would."""
    if not any(name.lower().endswith("_proxy") for name in environ):
        return {}
    known = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    excepted = ",".join(dict.fromkeys(filter(None, (*known.split(","), *hosts))))
    return {"NO_PROXY": excepted, "no_proxy": excepted}


def node_variables(cluster: EmulatedCluster, node: int, tmp: Path) -> dict[str, str]:
    """What says which node this is, and what share of the machine it has."""
    variables = {
        "AZUREML_NODE_COUNT": str(cluster.nodes),
        "AZUREML_CR_NODE_RANK": str(node),
        "AZ_BATCHAI_TASK_INDEX": str(node),
        "AZ_BATCHAI_JOB_MASTER_NODE_IP": cluster.addresses[0],
        "AZ_BATCH_IS_CURRENT_NODE_MASTER": str(node == 0).lower(),
        "AZ_BATCH_NODE_LIST": _address_list(cluster.nodes, ";"),
        "AZ_BATCH_HOST_LIST": _address_list(cluster.nodes, ","),
        "AZ_BATCHAI_NODE_IP": cluster.addresses[node],
        "AZ_BATCH_NODE_IS_DEDICATED": "true",
        "NCCL_SOCKET_IFNAME": "lo",  # eth0 there; here the loopback interface has the addresses of all nodes
        "TMPDIR": str(tmp),
        "OMP_NUM_THREADS": str(cluster.threads),
    }
    if cluster.devices is not None:
        variables["CUDA_VISIBLE_DEVICES"] = cluster.devices[node]
    if cluster.devices is None or not cluster.devices[node]:
        # Accelerate, and so transformers' Trainer, forms no group on CPUs unless it is told to: each rank trains alone.
        variables["ACCELERATE_USE_CPU"] = "true"
    return variables
