"""TF_CONFIG, the JSON with which TensorFlow jobs are told who they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from shared.distributed.address import host_of
from shared.distributed.errors import LaunchError
from shared.distributed.families import Environ, LaunchClaim, shortened

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
