"""A step's nodes as containers: what the client is told for each, and how it is known which rank failed."""

from __future__ import annotations

import csv
import io
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from allranks.local.containers.client import container_name
from allranks.local.containers.images import ContainerImage
from allranks.local.containers.node_script import NodeGroup
from allranks.local.folders import StepFolder
from allranks.local.gang import RankExit, RankGang
from allranks.local.launch.launcher import LaunchContext, RankLauncher
from allranks.local.node_host import NodeHost
from allranks.local.rank_command import RankCommand
from allranks.local.variables import EmulatedCluster

_PROXIES = frozenset(["http_proxy", "https_proxy", "no_proxy", "all_proxy"])
_LABELS = ("AZUREML_ROOT_RUN_ID", "AZUREML_RUN_ID")
"""Variables that are labels too: by them people find a run's, or a step's, containers."""
_SHARED_MEMORY = "2g"  # what Azure ML gives a container whose YAML is silent (reference of the command job's YAML)
_TMP = Path("/tmp")  # noqa: S108 a container's own


@dataclass(frozen=True, slots=True, eq=False)
class ContainerHost(NodeHost):
    """Containers of one step.

    Attributes:
        image: what they are started from; its client starts them.
        shm_size: the size of their /dev/shm.
        docker_args: further options, of those that ``choice.py`` lets pass.
        gpus: whether there are GPUs to give to them.
    """

    image: ContainerImage
    shm_size: str | None = None
    docker_args: tuple[str, ...] = ()
    gpus: bool = False

    is_this_machine = False

    @property
    def end(self) -> Callable[[str], None]:
        """Removes the containers of a gang, or of a run."""
        return self.image.client.remove

    def identity(self, python: Path) -> str:  # noqa: ARG002 the image has its own
        """What is in the image decides."""
        return self.image.identity

    def inherited(self, environ: Mapping[str, str], python: Path) -> dict[str, str]:  # noqa: ARG002
        """The caller's proxies alone, as on Azure ML nothing of the caller; and who owns what is written."""
        kept = {name: value for name, value in environ.items() if name.lower() in _PROXIES}
        if not self.image.client.is_rootless and os.getuid() != 0:  # no home, and no name in the image's /etc/passwd
            kept |= {"HOME": str(_TMP), "USER": environ.get("USER", "user")}
        return kept

    def launcher(self, of_distribution: RankLauncher) -> RankLauncher:
        """One client for each node, which runs as long as its container does."""

        def commands(context: LaunchContext) -> list[RankCommand]:
            return [self._client_command(group, context) for group in _groups(of_distribution, context)]

        def write_files(context: LaunchContext) -> None:
            shutil.rmtree(_launch_folder(context.folder), ignore_errors=True)
            for group in _groups(of_distribution, context):
                own_tmp = group.first.environ["TMPDIR"] == str(context.tmp(group.first.node))
                group.write({"TMPDIR": str(_TMP)} if own_tmp else {}, context.umask)

        def failed_exits(folder: StepFolder, cluster: EmulatedCluster, gang: RankGang) -> list[RankExit]:  # noqa: ARG001
            failed = [one for command in gang.commands if isinstance(command, _NodeClient) for one in command.failed()]
            return sorted(failed, key=lambda exit_: exit_.when)

        return RankLauncher(commands, write_files, failed_exits)

    def _client_command(self, group: NodeGroup, context: LaunchContext) -> RankCommand:
        first = group.first
        argv = (self.image.client.program, "run", *self.options(group, context), self.image.reference)
        environ = {name: value for name, value in os.environ.items() if name not in _LABELS}
        log = group.folder / "client.txt"
        return _NodeClient(
            None, first.node, (*argv, str(group.script)), environ, first.cwd, log, first.essential, group=group
        )

    def options(self, group: NodeGroup, context: LaunchContext) -> list[str]:
        """The options of ``run`` for a container; values of variables are not among them."""
        node, environ, client = group.first.node, group.first.environ, self.image.client
        name = container_name(environ["AZUREML_RUN_ID"], group.folder.name, secrets.token_hex(2))
        options = ["--rm", "--pull", "never", "--name", name, "--network", "host", "--hostname", f"node{node}"]
        for other, address in enumerate(context.cluster.addresses):
            options += ["--add-host", f"node{other}:{address}"]
        for label in _LABELS:
            options += ["--label", f"{label}={environ[label]}"]
        options += ["--user", client.user, "--workdir", str(group.first.cwd), "--env-file", str(group.env_file)]
        options += ["--shm-size", self.shm_size or _SHARED_MEMORY, "--security-opt", "label=disable"]
        if not client.is_podman and not client.is_rootless:
            options += ["--userns", "host"]  # where the daemon gives containers other users, outputs would be theirs
        if self.gpus and environ.get("CUDA_VISIBLE_DEVICES") != "":
            options += client.gpu_options()
        for source, target, is_writable in _mounts(group, context):
            options += ["--mount", _mount(source, target, is_writable=is_writable)]
        return [*options, *self.docker_args, "--entrypoint", "/bin/bash"]


@dataclass(frozen=True, slots=True)
class _NodeClient(RankCommand):
    """The client that runs a node's container."""

    group: NodeGroup | None = None

    def failed(self) -> list[RankExit]:
        return self.group.failed_exits() if self.group else []


def _launch_folder(folder: StepFolder) -> Path:
    return folder.path / "nodes" / "containers"


def _groups(of_distribution: RankLauncher, context: LaunchContext) -> list[NodeGroup]:
    """The ranks by node; parameter servers apart, since they are ended after the workers have succeeded."""
    found: dict[str, list[RankCommand]] = {}
    for command in of_distribution.commands(context):
        found.setdefault(f"{'node' if command.essential else 'servers'}{command.node}", []).append(command)
    return [NodeGroup(commands, _launch_folder(context.folder) / name) for name, commands in found.items()]


def _mounts(group: NodeGroup, context: LaunchContext) -> list[tuple[Path, Path, bool]]:
    """Source, place inside and whether it can be written; the places are those outside, but for the node's /tmp."""
    folder, node = context.folder, group.first.node
    tmp = context.tmp(node)
    writable = dict.fromkeys([folder.work(node), folder.logs, group.folder, *context.writes])
    readable = [path for path in dict.fromkeys(context.reads) if path not in writable]
    for path in (*writable, *readable):
        _make_place(path, tmp)
    mounts = [(tmp, _TMP, True), *((path, path, True) for path in writable)]
    return mounts + [(path, path, False) for path in readable]


def _make_place(path: Path, tmp: Path) -> None:
    """Where a path lies below /tmp, make its place in the node's own; the client would, but as root."""
    if path.is_relative_to(_TMP):
        place = tmp / path.relative_to(_TMP)
        (place if path.is_dir() else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            place.touch()


def _mount(source: Path, target: Path, *, is_writable: bool) -> str:
    """The value of ``--mount``, a line of CSV: paths may have commas."""
    line = io.StringIO()
    fields = ["type=bind", f"source={source}", f"target={target}", *([] if is_writable else ["readonly"])]
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
