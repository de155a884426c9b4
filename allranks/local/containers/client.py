"""The client of a container engine, docker or podman: found, asked, and told to end what has a name of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from allranks.errors import CannotRunHereError, UsageError
from allranks.local import processes
from allranks.request import ANY_CLIENT, CLIENTS

_INSTALL = "Install one: https://docs.docker.com/engine/install or https://podman.io. Or leave out --containers."
_SECONDS = 60.0  # that an answer may take; removing a container may wait for a busy disk
_ROUNDS = 20


@dataclass(frozen=True, slots=True, eq=False)
class ContainerClient:
    """A client that answers.

    Attributes:
        program: its path.
        is_podman: there may be a podman behind the name docker.
        is_rootless: root in a container is the caller outside; otherwise users are the same inside and outside.
    """

    program: str
    is_podman: bool
    is_rootless: bool

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its commands to its end, which may be a failure."""
        return _run(self.program, *arguments)

    def image_id(self, image: str) -> str:
        """The id of an image that is there; empty if it is not."""
        found = self.ask("image", "inspect", "--format", "{{.Id}}", image)
        return found.stdout.strip() if found.returncode == 0 else ""

    def remove(self, marker: str) -> None:
        """Kill and remove all containers of a run or of a step's ranks, until there is none; errors are of no interest.

        One by one: of several names podman gives up at the first that is gone already. By their names, since podman has
        no labels of a container that it was killed while making.

        Args:
            marker: ``NAME=value``, the value being the id of the run or of the step's job.
        """
        beginning = container_name(marker.partition("=")[2], "")
        for round_ in range(_ROUNDS):
            found = self._named(beginning)
            time.sleep(0.05 * round_)
            for container in found:
                self.ask("kill", container)  # first: podman's rm would wait ten seconds for it to end by itself
                self.ask("rm", "--force", container)
            if self.is_podman:
                _end_helpers(beginning)
            if not found:
                return

    def _named(self, beginning: str) -> list[str]:
        """The containers with such names, running or not."""
        options = ["--external"] if self.is_podman else []
        names = self.ask("ps", "--all", *options, "--format", "{{.Names}}").stdout.split()
        return [name for name in names if name.startswith(beginning)]

    @property
    def user(self) -> str:
        """As whom a container's processes run, so that what they write belongs to the caller."""
        return "0:0" if self.is_rootless else f"{os.getuid()}:{os.getgid()}"

    def gpu_options(self) -> list[str]:
        """What gives a container all GPUs; CUDA_VISIBLE_DEVICES says which are the node's."""
        return ["--device", "nvidia.com/gpu=all"] if self.is_podman else ["--gpus", "all"]


def find_client(choice: str) -> ContainerClient:
    """The client of this name, or for ``any`` the first that answers.

    Raises:
        UsageError: it is no such name.
        CannotRunHereError: it is not there, or its engine does not answer.
    """
    if choice not in (ANY_CLIENT, *CLIENTS):
        raise UsageError(f"--containers {choice}: there is no such client.", "There are docker and podman.")
    names = CLIENTS if choice == ANY_CLIENT else (choice,)
    found = [program for name in names if (program := shutil.which(name))]
    if not found:
        raise CannotRunHereError(f"--containers needs {' or '.join(names)}, which is not on PATH.", _INSTALL)
    said = []
    for program in found:
        answer = _ask_client(program)
        if isinstance(answer, ContainerClient):
            return answer
        said.append(f"{program} does not answer: {answer}")
    raise CannotRunHereError("\n".join(said), "Start its service, or leave out --containers.")


def _ask_client(program: str) -> ContainerClient | str:
    """The client, or what it says where its engine does not answer."""
    is_podman = "podman" in _run(program, "--version").stdout
    wanted = "{{.Host.Security.Rootless}}" if is_podman else "{{json .SecurityOptions}}"
    told = _run(program, "info", "--format", wanted)
    if told.returncode != 0:
        lines = [line for line in told.stderr.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {told.returncode}"
    return ContainerClient(program, is_podman, "rootless" in told.stdout or told.stdout.strip() == "true")


def container_name(job: str, *parts: str) -> str:
    """The beginning of the names of a run's or a step's containers, or with further ``parts`` one of them."""
    return "-".join(("allranks", job, *parts))


def _end_helpers(beginning: str) -> None:
    """End podman's monitors of containers with such names, and what these have started.

    Where podman is killed while it makes a container they stay, and wait for ever.
    """
    containers: set[bytes] = set()
    for _ in range(_ROUNDS):
        lines = {pid: line for pid in processes.every_pid() if (line := _command_line(pid))}
        for line in lines.values():
            if line[0].endswith(b"conmon") and any(word.startswith(beginning.encode()) for word in line):
                containers.add(line[line.index(b"-c") + 1])
        found = [pid for pid, line in lines.items() if containers & {*line} and not line[0].endswith(b"podman")]
        if not found:
            return
        processes.kill(found)
        time.sleep(0.02)


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []  # it has ended


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program, *arguments]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
