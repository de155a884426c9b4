from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from allranks import catalogue, library

ROOT = Path(__file__).parents[1]


def test_a_checkout_finds_its_own_folders() -> None:
    assert library.root() == ROOT
    assert all((library.root() / folder).is_dir() for folder in library.FOLDERS)


def test_one_version_for_all() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == library.VERSION
    for path in (*catalogue.component_files().values(), *catalogue.environment_files().values()):
        assert yaml.safe_load(path.read_text())["version"] == library.VERSION, path


def test_the_wheel_s_folders_come_before_any_shared_folder_beside_the_package(tmp_path: Path) -> None:
    package = _package_alone(tmp_path)
    for folder in (package / "_library", tmp_path):
        (folder / "components").mkdir(parents=True)
        (folder / "shared").mkdir()
    assert _root_seen_from(tmp_path) == str(package / "_library")


def test_a_package_without_its_folders_says_what_is_missing(tmp_path: Path) -> None:
    package = _package_alone(tmp_path)
    message = _root_seen_from(tmp_path)
    assert "components, pipelines, shared, environments" in message
    assert str(package / "_library") in message


def _package_alone(folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "allranks", folder / "allranks", ignore=shutil.ignore_patterns("__pycache__")))


def _root_seen_from(folder: Path) -> str:
    program = (
        "from allranks import errors, library\n"
        "try:\n    print(library.root())\n"
        "except errors.StorageError as error:\n    print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
