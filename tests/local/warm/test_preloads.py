"""What is imported before a script runs is what it would import itself, and never what it prepares for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.local.snapshot import SnapshotFile, snapshot_files
from allranks.local.warm.preloads import find_preloads
from allranks.spec import read_component
from tests.helpers import ROOT


def preloads(folder: Path, entry: str = "train.py", **files: str) -> tuple[str, ...]:
    """What is found for scripts by name, with ``__`` for a slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = sorted(folder.rglob("*.py"))
    return find_preloads(entry, [SnapshotFile(path.relative_to(folder).as_posix(), path) for path in found]).modules


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import numpy as np, os\n", ("numpy",)),
        ("from torch.nn import Linear\n", ("torch", "torch._dynamo")),
        ("def main():\n    import torch\n", ("torch", "torch._dynamo")),
        ("def main():\n    import transformers\n", ()),
        ("import os\nos.environ['MASTER_PORT'] = '1'\nimport numpy\n", ("numpy",)),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport numpy\n", ()),
        ("import os\nos.environ[NAME] = '1'\nimport numpy\n", ()),
        ("import os\nos.environ.update(a='1')\nimport numpy\n", ()),
        ("import os\nif os.environ['RANK'] == '0':\n    import numpy\nimport numpy\n", ("numpy",)),
        ("import lightning, tensorflow, deepspeed\n", ()),
        ("import os\nos.environ |= {'A': '1'}\nimport numpy\n", ()),
        ("from os import environ as E\nE['OMP_NUM_THREADS'] = '1'\nimport numpy\n", ()),
        ("import os\nprint(os.environ.get('OMP_NUM_THREADS'))\nimport numpy\n", ("numpy",)),
        ("import os\nos.environ.pop('MKL_NUM_THREADS', None)\nimport numpy\n", ()),
        ("import sys\nsys.path.insert(0, '/elsewhere')\nimport numpy\n", ()),
        ("import sys\nsys.path[:0] = ['/elsewhere']\nimport numpy\n", ()),
        ("import sys\nsys.path.append('/elsewhere')\nprint(sys.path)\nimport numpy\n", ("numpy",)),
    ],
)
def test_a_script_tells_by_its_imports(tmp_path: Path, text: str, modules: tuple[str, ...]) -> None:
    assert preloads(tmp_path, train=text) == modules


def test_modules_of_its_own_are_followed(tmp_path: Path) -> None:
    files = {"train": "from pkg import model\nimport helper\n", "pkg__model": "from . import parts\n"}
    files |= {"pkg____init__": "", "pkg__parts": "import numpy\n", "helper": "", "other": "import pandas\n"}
    assert preloads(tmp_path, **files) == ("numpy",)
    assert preloads(tmp_path, "pkg.model") == ("numpy",)
    assert preloads(tmp_path, "elsewhere.py") == ()


def test_a_module_that_stands_in_for_another_rules_it_out(tmp_path: Path) -> None:
    assert preloads(tmp_path, train="import sys\nsys.path.append('libs')\nimport numpy\n", libs__numpy="") == ()


def test_variables_that_a_script_may_set_are_held_against_what_imports_have_looked_at(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, numpy\nfor name in ('SKLEARN_ASSUME_FINITE', 'B'):\n    set_one(os.environ, name)\nos.environ['READ']\n"
    )
    found = find_preloads("train.py", [SnapshotFile("train.py", tmp_path / "train.py")])
    assert {"SKLEARN_ASSUME_FINITE", "B"} <= found.variables
    assert "READ" not in found.variables


def test_the_components_that_train_with_torch_have_it_imported() -> None:
    for name in ("train_ddp", "train_fsdp"):
        files = snapshot_files(read_component(catalogue.component_files()[name]))
        assert {"torch", "torch._dynamo", "numpy"} <= set(find_preloads(f"{name}.py", files).modules), name


@pytest.mark.parametrize(
    ("changed", "torch"), [("", True), ("shared/storage.py", True), ("shared/distributed/startup.py", False)]
)
def test_a_component_that_was_copied_has_it_too_until_a_change_may_matter(
    changed: str, torch: bool, tmp_path: Path
) -> None:
    """As `allranks copy` does, for somebody who wants to change it."""
    without = shutil.ignore_patterns("__pycache__")
    for name in ("components/train_ddp", "shared"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=without)
    if changed:
        with (tmp_path / changed).open("a") as file:
            file.write("# mine\n")
    files = snapshot_files(read_component(tmp_path / "components" / "train_ddp" / "component.yaml"))
    assert ("torch" in find_preloads("train_ddp.py", files).modules) == torch
