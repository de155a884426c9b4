"""A snapshot has what its step needs: the scripts start in it, and what another framework's room holds is not in it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from allranks import catalogue
from allranks.local import snapshot
from allranks.renew.snapshots import source_tree
from allranks.spec import read_component
from tests.helpers import ROOT, clean_environment, start_rank
from tests.waiting import TIMEOUT

WITH_SHARED = [name for name in catalogue.COMPONENTS if name != "compare_models"]


def _trainers(*frameworks: str) -> set[str]:
    tags = {name: read_component(file).tags for name, file in catalogue.component_files().items()}
    return {name for name, own in tags.items() if own["allranks"] == "training" and own["framework"] in frameworks}


KERAS = {"train_horovod_keras", *_trainers("tensorflow")}
REACHED_BY = {
    "shared/training/torch": {*_trainers("pytorch", "deepspeed", "lightning", "transformers"), "train_horovod"},
    "shared/training/keras": KERAS,
    "shared/training/fsdp": {"train_fsdp", "train_transformers"},
    "shared/training/deepspeed": _trainers("deepspeed", "transformers"),
    "shared/training/lightning": _trainers("lightning"),
    "shared/training/transformers": _trainers("transformers"),
    "shared/models/keras": {*KERAS, "evaluate"},
    "shared/models/transformers": {"train_transformers", "evaluate"},
    "shared/report": {"evaluate"},
    "shared/cluster": {"check_cluster"},
}
"""Rooms of one framework or one purpose, and the steps that an edit there may run again: all others keep their keys."""

IMPORT_ALL = """
import importlib, runpy, sys
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "shared").partition(".")[0] in ("shared", "components"):
            raise
sys.argv[1:] = ["--help"]
runpy.run_path(SCRIPT, run_name="__main__")
"""


def snapshot_of(name: str, root: Path = ROOT) -> list[snapshot.SnapshotFile]:
    return snapshot.snapshot_files(read_component(root / "components" / name / "component.yaml"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of one's own, to edit."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("components", "shared"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.mark.parametrize("name", WITH_SHARED)
def test_all_that_a_snapshot_imports_of_ours_is_in_it(name: str) -> None:
    whole = source_tree(read_component(catalogue.component_files()[name]))
    kept = {file.path for file in snapshot_of(name)}
    wanted = {
        place: whole.targets(place, ("start",)) | whole.packages_above(place) for place in kept & set(whole.files)
    }
    missing = {place: targets - kept for place, targets in wanted.items() if targets - kept}
    assert missing == {}


def _forked_from(name: str) -> str | None:
    """The framework that is imported once for many, as tests/forks.py says; nothing of ours comes with it."""
    if name.startswith("prepare"):
        return None
    return "tensorflow" if name in KERAS else "torch"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("prepare_data", "train_ddp", "evaluate") else pytest.mark.exhaustive)
        for name in WITH_SHARED
    ],
)
def test_the_script_and_all_that_it_may_import_start_in_its_own_snapshot(name: str, tmp_path: Path) -> None:
    files = snapshot_of(name)
    snapshot.copy_snapshot(files, tmp_path)
    modules = [
        file.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in files
        if file.path.endswith(".py")
    ]
    modules = [module for module in modules if module.startswith("shared") and not module.endswith(".serve")]
    (script,) = tmp_path.glob("*.py")
    program = tmp_path / "start_all.py"
    program.write_text(IMPORT_ALL.replace("SCRIPT", repr(script.name)))
    with (tmp_path / "said").open("wb") as said:
        command = [sys.executable, str(program), *modules]
        process = start_rank(command, clean_environment({"PYTHONPATH": None}), tmp_path, said, said, _forked_from(name))
        code = process.wait(TIMEOUT)
    text = (tmp_path / "said").read_text()
    assert code == 0, text
    assert "--init-timeout" in text


def test_few_files_for_what_needs_no_framework() -> None:
    assert len(snapshot_of("prepare_data")) <= 60
    assert len(snapshot_of("check_cluster")) <= 60


@pytest.mark.slow
def test_an_edit_in_a_room_changes_the_snapshots_of_its_own_steps_alone(tree: Path) -> None:
    before = {name: snapshot.content_hash(snapshot_of(name, tree)) for name in catalogue.COMPONENTS}
    changed = {}
    for room in REACHED_BY:
        file = tree / room / "__init__.py"
        text = file.read_text()
        file.write_text(text + "# edited\n")
        after = {name: snapshot.content_hash(snapshot_of(name, tree)) for name in catalogue.COMPONENTS}
        changed[room] = {name for name, before_ in before.items() if after[name] != before_}
        file.write_text(text)
    assert changed == REACHED_BY


def test_a_file_that_is_new_is_taken_along(tree: Path) -> None:
    new = tree / "shared" / "data" / "new_format.py"
    new.write_text("")
    paths = [file.path for file in snapshot_of("prepare_data", tree)]
    new.unlink()
    assert "shared/data/new_format.py" in paths
