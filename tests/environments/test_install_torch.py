"""environments/install_torch.py: which build of torch a machine gets, and from where."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from environments import install_torch

SCRIPT = Path(__file__).parents[2] / "environments" / "install_torch.py"


@pytest.mark.parametrize(
    ("gpu", "driver", "build"),
    [(False, 0, "cpu"), (False, 580, "cpu"), (True, 535, "cu126"), (True, 580, ""), (True, 0, "")],
)
def test_the_build_follows_the_gpu_and_its_driver(gpu: bool, driver: int, build: str) -> None:
    assert install_torch.choose_build(gpu, driver) == build


@pytest.mark.parametrize("name", ["NVIDIA UNIX x86_64 Kernel Module", "NVIDIA UNIX Open Kernel Module for x86_64"])
def test_the_driver_is_read_from_the_kernel(tmp_path: Path, name: str) -> None:
    file = tmp_path / "version"
    assert install_torch.driver_version(file) == 0
    file.write_text(f"NVRM version: {name}  535.161.07  Sat Feb 17 22:55:48 UTC 2024\nGCC version: 12.3.0\n")
    assert install_torch.driver_version(file) == 535


def test_only_a_gpu_counts_as_one(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert not install_torch.has_gpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert install_torch.has_gpu(tmp_path)


def wheel(folder: Path, version: str) -> None:
    """A wheel of nothing."""
    info = f"torch-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as made:
        for name, text in files.items():
            made.writestr(name, text)


@pytest.mark.slow
@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU, and gets another build")
def test_a_machine_without_a_gpu_gets_the_build_without_cuda_or_a_note(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("numpy==2\ntorch==9.9.9\n")
    wheel(tmp_path, "9.9.9")
    target = tmp_path / "installed"
    # Not as this machine's pip is configured: a cap of torch there, or a mirror, is another answer.
    ours = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_TARGET": str(target),
    }
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | ours

    def install() -> str:
        command = [sys.executable, str(SCRIPT), str(tmp_path / "lock.txt")]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout

    said = install()
    assert "note: torch==9.9.9+cpu is neither where pip looks nor in https://download.pytorch.org/whl/cpu" in said
    assert "several GB of CUDA" in said
    assert {path.name for path in target.glob("*.dist-info")} == {"torch-9.9.9.dist-info"}
    wheel(tmp_path, "9.9.9+cpu")
    (target / "torch-9.9.9.dist-info").rename(tmp_path / "away")
    assert install() == "torch==9.9.9+cpu\n"
    assert {path.name for path in target.glob("*.dist-info")} == {"torch-9.9.9+cpu.dist-info"}


@pytest.mark.slow
def test_no_torch_at_all_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("torch==9.9.9\n")
    environ = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    command = [sys.executable, str(SCRIPT), str(tmp_path / "lock.txt")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "torch==9.9.9 cannot be installed" in done.stderr
    assert "Traceback" not in done.stderr
