"""The container engines that run here: podman, with what a machine inside another one may need, and docker's daemon.

The image of the tests is an empty folder tree; programs are those of this machine, mounted read-only, so that nothing
is downloaded. Tests of an engine that is not there, or that runs no container, are skipped and say why.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import TIMEOUT

_SEEN = ("/usr", "/bin", "/lib", "/lib64", sys.prefix, sys.base_prefix)
_CONF = """
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
seccomp_profile = "unconfined"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
_STORAGE = """
[storage]
driver = "vfs"
runroot = "{root}/run"
graphroot = "{root}/graph"
"""
# crun refuses the two hierarchies of cgroups that some machines mount; in a mount namespace it sees one.
_ONE_HIERARCHY = 'umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'
_CLIENT = """#!/bin/sh
{exports}
if [ "$1" = run ]; then
    shift
    set -- run {volumes} "$@"
fi
{start} "$@"
"""


@dataclass(frozen=True)
class Client:
    """A client whose engine works; ``program`` lies in a folder of its own, to be put on PATH."""

    name: str
    program: Path
    image: str

    @property
    def variables(self) -> dict[str, str]:
        """What lets this client be found before all others."""
        return {"PATH": f"{self.program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def ask(self, *arguments: str) -> str:
        """What a command of it prints; it has to succeed."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def containers(self, folder: Path) -> list[str]:
        """The names of the containers of the runs in a folder, running or not."""
        runs = [path.name for path in folder.glob(".allranks/runs/*")]
        names = self.ask("ps", "--all", "--format", "{{.Names}}").split()
        return [name for name in names if any(run in name for run in runs)]

    def import_image(self, name: str, folder: Path, *changes: str) -> None:
        """Make an image of a folder."""
        archive = folder.with_suffix(".tar")
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, ".")
        options = [word for change in changes for word in ("--change", change)]
        self.ask("import", *options, str(archive), name)

    def try_out(self, tree: Path) -> str:
        """Import the image of the tests and run something in it; why that fails, empty if it does not."""
        try:
            self.import_image(self.image, tree, f"ENV PATH={Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
            said = self.ask("run", "--rm", "--network", "host", self.image, "/bin/bash", "-c", "echo works")
        except AssertionError as error:
            said = str(error)
        return "" if said == "works\n" else said.strip()


@pytest.fixture(scope="session", params=["podman", "docker"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    name: str = request.param
    real = shutil.which(name)
    if real is None:
        pytest.skip(f"{name} is not installed")
    root = tmp_path_factory.mktemp(name)
    seen = [path for path in dict.fromkeys(_SEEN) if Path(path).exists()]
    tree = root / "tree"
    for folder in ("etc", "proc", "sys", "dev", "tmp", "root", *(path.lstrip("/") for path in seen)):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    found = Client(name, root / "bin" / name, f"allranks-tests:{os.getpid()}")
    found.program.parent.mkdir()
    volumes = shlex.join(word for path in seen for word in ("--volume", f"{path}:{path}:ro"))
    said = "it does not start"
    for exports, start in _ways(name, real, root):
        found.program.write_text(_CLIENT.format(exports=exports, volumes=volumes, start=start))
        found.program.chmod(0o755)
        if not (said := found.try_out(tree)):
            yield found
            found.ask("image", "rm", "--force", found.image)
            return
    pytest.skip(f"{name} runs no containers here: {said.splitlines()[-1]}")


def _ways(name: str, real: str, root: Path) -> list[tuple[str, str]]:
    """The ways in which a client is tried: variables, and how it is started."""
    if name == "docker":
        return [("", f"exec {real}")]
    (root / "containers.conf").write_text(_CONF)
    (root / "storage.conf").write_text(_STORAGE.format(root=root))
    variables = f"CONTAINERS_CONF={root}/containers.conf CONTAINERS_STORAGE_CONF={root}/storage.conf"
    exports = f"export {variables} BUILDAH_ISOLATION=chroot"
    return [(exports, f"exec {real}"), (exports, f"exec unshare --mount sh -c '{_ONE_HIERARCHY}' sh {real}")]
