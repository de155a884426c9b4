"""``type: pytorch``: every rank is started with the variables that torch.distributed reads.

Azure ML does not set LOCAL_WORLD_SIZE, so neither do we. With one process on each node and torchrun in the command
(per-node launch) the same variables tell torchrun which node it is on.
"""

from __future__ import annotations

from allranks.local.launch.launcher import LaunchContext, RankLauncher
from allranks.local.rank_command import RankCommand


def _commands(context: LaunchContext) -> list[RankCommand]:
    """All ranks of all nodes, node by node."""
    cluster = context.cluster
    commands = []
    for node in range(cluster.nodes):
        for local_rank in range(cluster.processes):
            rank = node * cluster.processes + local_rank
            variables = {
                "RANK": rank,
                "WORLD_SIZE": cluster.nodes * cluster.processes,
                "LOCAL_RANK": local_rank,
                "NODE_RANK": node,
                "MASTER_ADDR": cluster.addresses[0],
                "MASTER_PORT": cluster.port,
                "AZUREML_PROCESS_NAME": f"rank_{rank}",
            }
            commands.append(context.rank(rank, node, {name: str(value) for name, value in variables.items()}))
    return commands


PYTORCH_LAUNCHER = RankLauncher(_commands)
