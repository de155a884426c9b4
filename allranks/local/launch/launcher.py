"""What each launcher says of itself: how it starts the ranks of a step, and what it knows of how they ended."""

from __future__ import annotations

from allranks.local.folders import StepFolder
from allranks.local.gang import Gang, RankCommand, RankExit
from allranks.local.launch import torchrun
from allranks.local.launch.context import LaunchContext
from allranks.local.variables import Cluster


class Launcher:
    """One for each distribution, in a file of its own; here is what most of them have in common."""

    program: str | None = None
    """What has to be on PATH."""
    remedy = ""
    """How to get the program."""

    def commands(self, context: LaunchContext) -> list[RankCommand]:
        """The processes that the engine starts.

        Raises:
            CannotRunHereError: the program is not there, or not as it should be.
        """
        raise NotImplementedError

    def first_exit(self, folder: StepFolder, cluster: Cluster, gang: Gang) -> RankExit | None:
        """How the rank that failed first ended; of ranks that torchrun started, the engine sees only torchrun."""
        if gang.first_failure is None:
            return None
        exits = self.failed_exits(folder, cluster, gang) or [
            gang.first_failure,
            *(other for other in gang.exits if other is not gang.first_failure),
        ]
        return torchrun.first_exit(exits) or exits[0]

    def failed_exits(self, folder: StepFolder, cluster: Cluster, gang: Gang) -> list[RankExit]:  # noqa: ARG002
        """How ranks that the engine has not started itself have failed, the first one first."""
        return []

    def lost_ranks(self, folder: StepFolder, cluster: Cluster, gang: Gang) -> str:  # noqa: ARG002
        """What is wrong with processes that ended well before all of their ranks had; empty if nothing is."""
        return ""
