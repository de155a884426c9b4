"""What every launcher is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.gang import RankCommand
from allranks.local.variables import Cluster, of_node


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """One attempt of a step, ready to start.

    Attributes:
        command: the text for bash, with all expressions resolved.
        shared: the variables that all ranks have in common.
        overrides: the step's own ``environment_variables``, which win over everything.
    """

    folder: StepFolder
    cluster: Cluster
    command: str
    shared: Mapping[str, str]
    overrides: Mapping[str, str]

    def rank(self, rank: int | None, node: int, variables: Mapping[str, str], *, essential: bool = True) -> RankCommand:
        """The command of one process: bash in the node's working folder, as on Azure ML."""
        environ = {**self.shared, **of_node(self.cluster, node, self.folder.tmp(node)), **variables, **self.overrides}
        work: Path = self.folder.work(node)
        return RankCommand(
            rank=rank,
            node=node,
            argv=("/bin/bash", "-c", self.command),
            environ={**environ, "PWD": str(work)},
            cwd=work,
            log=self.folder.log(rank),
            essential=essential,
        )
