"""``type: tensorflow``: one worker on each node, parameter servers on the first nodes, and TF_CONFIG for all.

As on Azure ML there is no chief, and RANK and its like are absent. TF_CONFIG is set for one worker too.
"""

from __future__ import annotations

import json

from allranks.local.gang import RankCommand
from allranks.local.launch.launcher import LaunchContext, RankLauncher


def _commands(context: LaunchContext) -> list[RankCommand]:
    """All workers, then all parameter servers.

    Every server listens on all addresses of the machine, so each has a port of its own here; on Azure ML it is
    2222, and 2223 for a worker that shares its node with a server.
    """
    cluster = context.cluster
    servers = cluster.parameter_servers
    addresses = [f"{cluster.addresses[node]}:{cluster.port + node}" for node in range(cluster.nodes)]
    config: dict[str, list[str]] = {"worker": addresses}
    if servers:
        config["ps"] = [
            f"{cluster.addresses[number % cluster.nodes]}:{cluster.port + cluster.nodes + number}"
            for number in range(servers)
        ]
    workers = [_task(context, config, "worker", number, number, number) for number in range(cluster.nodes)]
    return workers + [
        _task(context, config, "ps", number, number % cluster.nodes, cluster.nodes + number)
        for number in range(servers)
    ]


def _task(
    context: LaunchContext, cluster: dict[str, list[str]], kind: str, index: int, node: int, rank: int
) -> RankCommand:
    text = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"})
    variables = {"TF_CONFIG": text, "AZUREML_PROCESS_NAME": f"rank_{rank}"}
    return context.rank(rank, node, variables, essential=kind == "worker")


TENSORFLOW_LAUNCHER = RankLauncher(_commands)
