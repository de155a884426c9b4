"""What every launcher is given, and what it says of itself: how it starts ranks, and how it knows that they ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.gang import RankExit, RankGang
from allranks.local.launch import torchrun
from allranks.local.overlay import overlay_variables
from allranks.local.rank_command import RankCommand
from allranks.local.variables import EmulatedCluster, node_variables


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """One attempt of a step, ready to start.

    Attributes:
        command: the text for bash, with all expressions resolved.
        shared: the variables that all ranks have in common.
        overrides: the step's own ``environment_variables``, which win over everything.
        overlays: for each node where what it installs goes, if it ``installs`` anything; empty where nothing has to be
            kept from the interpreter.
        reads, writes: the paths of its data, on this machine.
        umask: of the ranks.
        temporary: the folder of its temporary files, with one folder for each node.
    """

    folder: StepFolder
    cluster: EmulatedCluster
    command: str
    shared: Mapping[str, str]
    overrides: Mapping[str, str]
    overlays: Sequence[Path] = ()
    installs: bool = False
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    umask: int = 0o022
    temporary: Path = Path("/tmp")  # noqa: S108 shown in place of the folder of an attempt that is not started

    def tmp(self, node: int) -> Path:
        """TMPDIR of a node."""
        return self.temporary / str(node)

    def of_node(self, node: int) -> dict[str, str]:
        """The variables that differ from node to node."""
        variables = node_variables(self.cluster, node, self.tmp(node))
        if self.overlays:
            variables |= overlay_variables(self.overlays[node], self.shared["PATH"], installs=self.installs)
        return variables

    def rank(self, rank: int | None, node: int, variables: Mapping[str, str], *, essential: bool = True) -> RankCommand:
        """The command of one process: bash in the node's working folder, as on Azure ML."""
        work = self.folder.work(node)
        environ = {**self.shared, **self.of_node(node), **variables, **self.overrides, "PWD": str(work)}
        argv = ("/bin/bash", "-c", self.command)
        return RankCommand(rank, node, argv, environ, work, self.folder.log(rank), essential)


@dataclass(frozen=True, slots=True)
class RankLauncher:
    """How the ranks of one distribution are started.

    Attributes:
        commands: the processes that the engine starts; raises CannotRunHereError where that cannot be.
        write_files: write what these processes need.
        failed_exits: how ranks that the engine has not started itself have failed, the first one first.
        lost_ranks: what is wrong with processes that ended well before all of their ranks had; empty if nothing is.
        note_stop: note that the ranks were asked to save and to end, so that the first end does not end the others.
        program: what has to be on PATH, or None; ``remedy`` says how to get it.
    """

    commands: Callable[[LaunchContext], list[RankCommand]]
    write_files: Callable[[LaunchContext], None] = lambda _: None
    failed_exits: Callable[[StepFolder, EmulatedCluster, RankGang], list[RankExit]] = lambda *_: []
    lost_ranks: Callable[[StepFolder, EmulatedCluster, RankGang], str] = lambda *_: ""
    note_stop: Callable[[StepFolder], None] = lambda _: None
    program: str | None = None
    remedy: str = ""

    def first_exit(self, folder: StepFolder, cluster: EmulatedCluster, gang: RankGang) -> RankExit | None:
        """How the rank that failed first ended; of ranks that torchrun started, the engine sees only torchrun."""
        first = gang.first_failure
        if first is None:
            return None
        exits = self.failed_exits(folder, cluster, gang) or [first, *(one for one in gang.exits if one is not first)]
        return torchrun.reported_exit(exits) or exits[0]


PLAIN_LAUNCHER = RankLauncher(lambda context: [context.rank(None, 0, {"AZUREML_PROCESS_NAME": "main"})])
"""Of a step without a distribution: one process on one node."""
