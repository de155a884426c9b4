"""The install script of environments/horovod: what it asks for, what it keeps, and what it changes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from allranks import catalogue
from environments.horovod import install

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # `make check` builds no Horovod
def test_the_installed_horovod_is_the_one_that_fits() -> None:
    assert install.installed("horovod") == install.wheel_version(), "make test builds and installs it"


def test_a_wheel_that_fits_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(work: Path) -> Path:
        made = work / "built.whl"
        made.write_bytes(b"wheel")
        built.append(made)
        return made

    built: list[Path] = []
    monkeypatch.setattr(install, "build", build)
    first, second = install.wheel(tmp_path), install.wheel(tmp_path)
    assert first == second
    assert first.read_bytes() == b"wheel"
    assert len(built) == 1
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    assert install.wheel(tmp_path) != first, "a wheel for GPUs is another one"


def test_a_compiler_that_lacks_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(install.sysconfig, "get_path", lambda name: str(tmp_path / name))
    lacking = install.lacking_packages()
    assert lacking == ["g++", "make", f"python{sys.version_info.major}.{sys.version_info.minor}-dev"]
    with pytest.raises(install.InstallError, match=r"apt-get install --yes --no-install-recommends g\+\+ make python"):
        install.install_compiler(lacking)


def test_the_name_of_a_wheel_says_what_it_is_for() -> None:
    import torch

    version = install.wheel_version()
    assert version.startswith("0.28.1+torch" + torch.__version__.partition("+")[0])
    assert "tensorflow" in version


def test_horovod_is_left_to_the_script_and_all_else_to_pip() -> None:
    assert install.requirement_of("horovod==0.28.1  # the last release") == ""
    assert install.requirement_of("# a comment") == ""
    assert install.requirement_of("torch>=2.10 # why") == "torch>=2.10"


@pytest.mark.parametrize("name", catalogue.ENVIRONMENTS)
def test_an_environment_has_what_azure_builds_it_from(name: str) -> None:
    path = catalogue.environment_files()[name]
    document = yaml.safe_load(path.read_text())
    folder = path.parent / document["build"]["path"]
    dockerfile = (folder / document["build"]["dockerfile_path"]).read_text()
    assert (folder / "requirements.txt").is_file()
    copied = [word for line in dockerfile.splitlines() if line.startswith("COPY") for word in line.split()[1:-1]]
    assert "lock.txt" in copied
    assert all((folder / file).is_file() for file in copied)


def test_the_script_needs_nothing_but_the_standard_library() -> None:
    source = (ROOT / "environments" / "horovod" / "install.py").read_text()
    imported = {
        line.split()[1].partition(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))
    }
    assert imported <= set(sys.stdlib_module_names)
