"""``type: tensorflow``: one worker on each node, parameter servers on the first nodes, and TF_CONFIG for all.

As on Azure ML there is no chief, and RANK and its like are absent. TF_CONFIG is set for one worker too.
"""

from __future__ import annotations

import json

from allranks.local.launch.launcher import LaunchContext, RankLauncher
from allranks.local.rank_command import RankCommand


def _commands(context: LaunchContext) -> list[RankCommand]:
    """All workers, then all parameter servers.

    Every server listens on all addresses of the machine, so each has a port of its own here; on Azure ML it is
    2222, and 2223 for a worker that shares its node with a server.
    """
    cluster = context.cluster
    tasks = [("worker", number) for number in range(cluster.nodes)]
    tasks += [("ps", number) for number in range(cluster.parameter_servers)]
    config: dict[str, list[str]] = {}
    for rank, (kind, number) in enumerate(tasks):
        config.setdefault(kind, []).append(f"{cluster.addresses[number % cluster.nodes]}:{cluster.port + rank}")
    commands = []
    for rank, (kind, number) in enumerate(tasks):
        text = json.dumps({"cluster": config, "task": {"type": kind, "index": number}, "environment": "cloud"})
        variables = {"TF_CONFIG": text, "AZUREML_PROCESS_NAME": f"rank_{rank}"}
        commands.append(context.rank(rank, number % cluster.nodes, variables, essential=kind == "worker"))
    return commands


TENSORFLOW_LAUNCHER = RankLauncher(_commands)
