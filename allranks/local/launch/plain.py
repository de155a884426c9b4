"""A step without a distribution: one process on one node."""

from __future__ import annotations

from allranks.local.gang import RankCommand
from allranks.local.launch.context import LaunchContext
from allranks.local.launch.launcher import Launcher


class PlainLauncher(Launcher):
    """See ``Launcher``."""

    def commands(self, context: LaunchContext) -> list[RankCommand]:
        """The one process."""
        return [context.rank(None, 0, {"AZUREML_PROCESS_NAME": "main"})]
