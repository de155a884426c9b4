from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allranks import library
from allranks.cli import copy


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_component_comes_with_shared_and_its_environment(cli: Callable[..., Any], tmp_path: Path) -> None:
    called = cli("copy", "train_ddp", str(tmp_path / "mine"))
    assert called.code == 0
    mine = tmp_path / "mine"
    assert {path.name for path in mine.iterdir()} == {"components", "shared", "environments"}
    assert (mine / "components/train_ddp/train_ddp.py").read_bytes() == (
        library.root() / "components/train_ddp/train_ddp.py"
    ).read_bytes()
    assert (mine / "components/train_ddp/.amlignore").is_file()
    assert (mine / "shared/distributed/__init__.py").is_file()
    assert not list(mine.rglob("__pycache__"))
    assert f"next: allranks run {mine}/components/train_ddp/component.yaml data=DATA" in called.out
    assert f"wrote {mine}/shared (" in called.out


def test_the_copy_is_as_sound_as_the_original(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("copy", "image_classification")
    assert cli("lint").out.endswith("nothing wrong\n")
    assert {path.name for path in Path("components").iterdir()} == {"prepare_data", "train_ddp", "evaluate"}
    assert Path("pipelines/image_classification.py").is_file()


def test_what_a_component_takes_from_another_comes_too(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("copy", "train_torchrun", str(tmp_path))
    assert (tmp_path / "components/train_ddp/train_ddp.py").is_file()


def test_shared_alone(cli: Callable[..., Any], tmp_path: Path) -> None:
    document = cli("copy", "shared", str(tmp_path), "--json").json
    assert {path.name for path in tmp_path.iterdir()} == {"shared"}
    assert set(document["written"]) == {str(tmp_path / file) for file in files_below(tmp_path)}
    assert document["next"] == ""


def test_a_second_copy_finds_everything_there(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("copy", "train_ddp", str(tmp_path))
    before = {file: (tmp_path / file).stat().st_mtime_ns for file in files_below(tmp_path)}
    called = cli("copy", "train_ddp", str(tmp_path))
    assert called.code == 0
    assert f"left {len(before)} files that were there already" in called.out
    assert {file: (tmp_path / file).stat().st_mtime_ns for file in files_below(tmp_path)} == before


@pytest.fixture
def changed(cli: Callable[..., Any], tmp_path: Path) -> Path:
    """A copy in which the user has changed a file of shared/, and removed another."""
    cli("copy", "train_ddp", str(tmp_path))
    (tmp_path / "shared/__init__.py").write_text("# mine\n")
    (tmp_path / "components/train_ddp/train_ddp.py").unlink()
    return tmp_path


def test_changed_files_are_not_overwritten(cli: Callable[..., Any], changed: Path) -> None:
    called = cli("copy", "train_ddp", str(changed))
    assert called.code == 2
    assert f"1 file is there already, with other contents: {changed}/shared/__init__.py." in called.err
    assert not (changed / "components/train_ddp/train_ddp.py").exists(), "all or nothing"


def test_keep_leaves_changed_files_and_brings_the_rest(cli: Callable[..., Any], changed: Path) -> None:
    assert cli("copy", "train_ddp", str(changed), "--keep").code == 0
    assert (changed / "shared/__init__.py").read_text() == "# mine\n"
    assert (changed / "components/train_ddp/train_ddp.py").exists()


def test_force_overwrites(cli: Callable[..., Any], changed: Path) -> None:
    assert cli("copy", "train_ddp", str(changed), "--force").code == 0
    assert (changed / "shared/__init__.py").read_text() != "# mine\n"


def test_a_copy_that_fails_leaves_nothing_half_written(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file where a folder has to be")
    called = cli("copy", "train_ddp", str(tmp_path))
    assert called.code == 2
    assert "cannot write" in called.err
    assert files_below(tmp_path) == {"shared"}


def test_copies_of_a_read_only_library_can_be_changed(tmp_path: Path) -> None:
    copy.copy_files([Path("shared/__init__.py")], tmp_path)
    assert (tmp_path / "shared/__init__.py").stat().st_mode & stat.S_IWUSR


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train_dpp",), "did you mean 'train_ddp'?"),
        (("train_ddp", "a_file"), "'a_file' is a file"),
        (("train_ddp", "--force", "--keep"), "not allowed with argument"),
    ],
)
def test_wrong_arguments(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()
    called = cli("copy", *arguments)
    assert called.code == 2
    assert message in called.err
    assert files_below(tmp_path) == {"a_file"}
