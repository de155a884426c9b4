"""A step without a distribution: one process on one node."""

from __future__ import annotations

from allranks.local.gang import RankCommand
from allranks.local.launch.launcher import LaunchContext, RankLauncher


def _commands(context: LaunchContext) -> list[RankCommand]:
    """The one process."""
    return [context.rank(None, 0, {"AZUREML_PROCESS_NAME": "main"})]


PLAIN_LAUNCHER = RankLauncher(_commands)
