"""Where rank 0 is: the main address and port, the same on every rank, chosen once and never drawn."""

from __future__ import annotations

import hashlib
import ipaddress
import re

from shared.distributed.errors import LaunchError
from shared.distributed.families import Environ, whole_number

LOOPBACK_ADDRESS = "127.0.0.1"
_DEFAULT_PORT = 6105  # what Azure ML gives to PyTorch jobs
_FIRST_DRAWN = 32768  # by the kernel for sockets that ask for no port: ip_local_port_range in ip(7)
_SPARE_PORTS = 8  # pairs of ports that a job may take one after the other, where other jobs hold the first ones
_JOB_IDS = {
    "torchrun": ("TORCHELASTIC_RUN_ID",),
    "openmpi": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "azureml-mpi": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "horovodrun": ("PMIX_NAMESPACE",),
    "slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
}
"""Variables that are the same on all ranks of one launch and others for the next, by launcher."""


def is_loopback(address: str) -> bool:
    """Whether the text itself names this machine only: ``localhost``, 127.0.0.0/8 or ``::1``; nothing is resolved."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def main_address(environ: Environ, num_nodes: int) -> str:
    """The host of rank 0, as far as the environment names it; loopback when there is one node.

    Raises:
        LaunchError: there are several nodes and nothing names the first.
    """
    found = (
        environ.get("MASTER_ADDR", "").strip()
        or re.sub("(?i)^localhost$", "", environ.get("AZ_BATCHAI_MPI_MASTER_NODE", "").strip())
        or host_of(environ.get("AZ_BATCH_MASTER_NODE", "").strip())
        or re.split(r"[;,]", environ.get("AZ_BATCH_NODE_LIST", ""))[0].strip()
        or (LOOPBACK_ADDRESS if num_nodes == 1 else "")
        or (_first_host(environ.get("SLURM_STEP_NODELIST", "")) if "SLURM_STEP_ID" in environ else "")
    )
    if not found:
        raise LaunchError(
            f"There are {num_nodes} nodes and none of MASTER_ADDR, AZ_BATCHAI_MPI_MASTER_NODE, AZ_BATCH_MASTER_NODE, "
            "AZ_BATCH_NODE_LIST and SLURM_STEP_NODELIST says which one is the first. "
            "Set MASTER_ADDR to the address of rank 0's node, on every rank."
        )
    return found


def job_id(environ: Environ, launcher: str) -> str:
    """What the ranks of one launch have in common: AZUREML_RUN_ID and the launcher's own ids; empty without any."""
    names = ("AZUREML_RUN_ID", *_JOB_IDS.get(launcher, ()))
    return "\n".join(environ[name] for name in names if environ.get(name))


def main_port(environ: Environ, taken: frozenset[int] = frozenset(), launcher: str = "") -> int:
    """The port of rank 0; the next one is the control plane's, so neither may be in ``taken``.

    Without MASTER_PORT it is 20000 + sha256(`job_id`) mod 10000, so that two jobs on one machine do not meet.

    Raises:
        LaunchError: MASTER_PORT is not a whole number between 1 and 65534.
    """
    port = whole_number("MASTER_PORT", environ)
    if port is not None:
        if not 1 <= port <= 65534:
            raise LaunchError(f"MASTER_PORT={port} has to lie between 1 and 65534: the port after it is used too.")
        return port
    job = job_id(environ, launcher)
    port = 20000 + int(hashlib.sha256(job.encode()).hexdigest(), 16) % 10000 if job else _DEFAULT_PORT
    while port in taken or port + 1 in taken:
        port += 2
    return port


def spare_ports(environ: Environ, launcher: str, port: int) -> tuple[int, ...]:
    """The main ports that rank 0 tries, in this order, and at which the others look for it; the first is `port`.

    There is no choice where somebody has chosen (MASTER_PORT, TF_CONFIG), and where nothing tells one job from
    another: a rank could then take another job's rank 0 for its own. A torchrun whose store is not for its ranks gives
    them a port that was free, and says nothing of the one after it; nor does one that was started with `--standalone`,
    whose store has a port that the kernel has drawn, among those that it gives to any connection.
    """
    drawn = launcher == "torchrun" and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "False"
    is_named = environ.get("TORCHELASTIC_RUN_ID", "none") != "none"  # which all have that were given no id
    drawn |= has_agent_store(environ, launcher) and is_named and port >= _FIRST_DRAWN
    chosen = ("MASTER_PORT" in environ and not drawn) or "TF_CONFIG" in environ or not job_id(environ, launcher)
    return (port,) if chosen else tuple(range(port, port + 2 * _SPARE_PORTS, 2))


def has_agent_store(environ: Environ, launcher: str) -> bool:
    """Whether torchrun itself holds the main port: its ranks find each other in its agent's store."""
    return launcher == "torchrun" and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def host_of(address: str) -> str:
    """The host of ``host``, ``host:port``, ``[v6]`` or ``[v6]:port``."""
    bracketed = re.fullmatch(r"\[(.*)\](?::\d+)?", address)
    if bracketed:
        return bracketed[1]
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else address


def _first_host(nodes: str) -> str:
    """The first host of a Slurm node list: ``gpu[03-05,9],x1`` is ``gpu03``."""
    first = re.match(r"(?:[^\[,]|\[[^\]]*\])*", nodes.strip())
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0]) if first else ""
