"""What every launcher is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.gang import RankCommand
from allranks.local.overlay import overlay_variables
from allranks.local.variables import Cluster, of_node


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """One attempt of a step, ready to start.

    Attributes:
        command: the text for bash, with all expressions resolved.
        shared: the variables that all ranks have in common.
        overlays: for each node where what it installs goes.
        installs: whether it seems to install anything.
        overrides: the step's own ``environment_variables``, which win over everything.
    """

    folder: StepFolder
    cluster: Cluster
    command: str
    shared: Mapping[str, str]
    overrides: Mapping[str, str]
    overlays: Sequence[Path]
    installs: bool

    def of_node(self, node: int) -> dict[str, str]:
        """The variables that differ from node to node."""
        installing = overlay_variables(self.overlays[node], self.shared["PATH"], installs=self.installs)
        return {**of_node(self.cluster, node, self.folder.tmp(node)), **installing}

    def rank(self, rank: int | None, node: int, variables: Mapping[str, str], *, essential: bool = True) -> RankCommand:
        """The command of one process: bash in the node's working folder, as on Azure ML."""
        environ = {**self.shared, **self.of_node(node), **variables, **self.overrides}
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
