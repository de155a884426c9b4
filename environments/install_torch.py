"""Install the torch that a list of versions names into the interpreter that runs this script, built for this machine.

    python install_torch.py LIST

Where there is no GPU that is the build for the CPU: 0.2 GB, where the one from PyPI brings several GB for CUDA. It is
asked for wherever pip is told to look (a mirror, a folder of wheels), then in PyTorch's own index; where neither has
it, the build from PyPI is taken, and that is said. Where there is a GPU whose driver is older than what PyPI's build
needs, it is PyTorch's build for CUDA 12.6. Used by `allranks env build`, with uv, and by `make`, with pip.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

INDEX = "https://download.pytorch.org/whl"
NEEDED_DRIVER = 580
"""What the CUDA 13 of PyPI's build needs: https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/."""
OLDER = "cu126"  # runs with drivers from 525 on


def main() -> None:
    """Install torch, or do nothing when the list has none or it is here already."""
    parser = argparse.ArgumentParser(description="Install the torch of a list, built for this machine.")
    parser.add_argument("versions", type=Path, metavar="LIST", help="a file with a line torch==VERSION")
    parser.add_argument("--uv", help="the program uv, which installs in place of pip")
    args = parser.parse_args()
    pinned = re.search(r"^torch==([\w.]+)", args.versions.read_text(encoding="utf-8"), re.MULTILINE)
    if pinned is None or installed_torch().partition("+")[0] == pinned[1]:
        return
    wanted, build = f"torch=={pinned[1]}", choose_build(has_gpu(), driver_version())
    said = [] if not build else install_build(f"{wanted}+{build}", f"{INDEX}/{build}", args.uv)
    if build and not said:
        print(f"{wanted}+{build}", flush=True)
        return
    if build:
        print(
            f"{''.join(said)}\nnote: {wanted}+{build} is neither where pip looks nor in {INDEX}/{build} (see above);"
            " PyPI's build is taken, several GB of CUDA included",
            flush=True,
        )
    command = [*installer(args.uv), wanted]
    if subprocess.run(command, check=False).returncode:
        parser.exit(
            2, f"{wanted} cannot be installed; what the installer says stands above. It was: {' '.join(command)}\n"
        )


def install_build(requirement: str, index: str, uv: str | None) -> list[str]:
    """Install one build of torch, without what it needs; what the installer said if it could not, else nothing."""
    said = []
    for place in ([], ["--index-url", index]):
        command = [*installer(uv), "--no-deps", *place, requirement]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == 0:
            return []
        said.append(f"{' '.join(command)}\n{done.stdout}")
    return said


def installer(uv: str | None) -> list[str]:
    """The command that installs into this interpreter."""
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1"]


def choose_build(gpu: bool, driver: int) -> str:  # noqa: FBT001 -- two facts about the machine, in a fixed order
    """The local part of the version to ask for; empty for PyPI's build.

    Args:
        gpu: is there a GPU of NVIDIA's?
        driver: the major version of its driver; 0 if unknown.
    """
    if not gpu:
        return "cpu"
    return OLDER if 0 < driver < NEEDED_DRIVER else ""


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Is a GPU of NVIDIA's among the devices? WSL has /dev/dxg in their place."""
    return any(devices.glob("nvidia[0-9]*")) or (devices / "dxg").exists()


def driver_version(file: Path = Path("/proc/driver/nvidia/version")) -> int:
    """The major version of the driver, such as 535; 0 if the kernel does not say."""
    found = re.search(r"Module.*?\s(\d+)\.\d+", file.read_text(encoding="utf-8")) if file.is_file() else None
    return int(found[1]) if found else 0


def installed_torch() -> str:
    """The version that this interpreter has; empty if there is none."""
    return next((found.version for found in metadata.distributions(name="torch")), "")


if __name__ == "__main__":
    main()
