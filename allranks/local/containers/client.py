"""The client of a container engine, docker or podman: found, asked, and told to end what carries a label."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass

from allranks.errors import CannotRunHereError, UsageError
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

    def remove(self, label: str) -> None:
        """Kill and remove all containers with a label, ``NAME=value``, until there is none; errors are of no interest.

        One by one: of several names podman gives up at the first that is gone already.
        """
        for round_ in range(_ROUNDS):
            found = self.ask("ps", "--all", "--quiet", "--filter", f"label={label}").stdout.split()
            if not found:
                return
            time.sleep(0.05 * round_)
            for container in found:
                self.ask("kill", container)  # first: podman's rm would wait ten seconds for it to end by itself
                self.ask("rm", "--force", container)

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


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [program, *arguments]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
