"""Names in an index or a manifest, and links in a folder that is removed or written to, lead nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shared.checkpoint.files import MANIFEST_FILE, Manifest, find_damage, read_manifest, remove_checkpoint
from shared.checkpoint.reading import newest_valid_checkpoint
from shared.checkpoint.saving import save_checkpoint
from shared.checkpoint.tensor_file import FileSeal
from shared.data.dataset.index import read_index
from shared.distributed import Refusal
from shared.storage import remove_folder
from tests.shared.streams import write_numbered

BAD = ("ABSOLUTE", "../victim/precious", "a/../../victim/precious", ".", "..", "", "a\nb", "a\0b")
bad = pytest.mark.parametrize("name", BAD, ids=map(repr, BAD))


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's, which has to be as it was."""
    folder = tmp_path / "victim"
    names = {"precious", "precious.part", "precious.npy", MANIFEST_FILE, "below/f", "state-0.json"}
    for file in (folder / name for name in names):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious")
    yield folder
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == dict.fromkeys(names, "precious")


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return save_checkpoint(folder, step, {"w": torch.zeros(3)}, {"step": step}, keep)


@bad
def test_an_index_names_only_files_of_its_folder(tmp_path: Path, victim: Path, name: str) -> None:
    folder, given = write_numbered(tmp_path / "data", [3]), str(victim / "precious") if name == "ABSOLUTE" else name
    document = json.loads((folder / "index.json").read_text())
    document["splits"]["train"]["shards"][0]["files"]["x"]["path"] = given
    (folder / "index.json").write_text(json.dumps(document))
    if name in (".", "", "a\nb"):  # inside of the folder, and no shard there
        assert read_index(folder).splits["train"][0].files["x"].path == given
        return
    with pytest.raises(Refusal, match="is damaged"):
        read_index(folder)


@bad
def test_a_manifest_names_only_files_of_its_checkpoint(tmp_path: Path, victim: Path, name: str) -> None:
    save(tmp_path / "checkpoints", 1)
    path = save(tmp_path / "checkpoints", 2)
    given = str(victim / "precious") if name == "ABSOLUTE" else name
    files = {**read_manifest(path).files, given: FileSeal.of_bytes(b"precious")}
    (path / MANIFEST_FILE).write_bytes(Manifest(2, files).encode())
    assert "is not a file of a checkpoint" in (find_damage(path) or "")
    assert newest_valid_checkpoint(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-00000001"


def test_a_folder_that_is_a_link_is_removed_and_its_target_stays(tmp_path: Path, victim: Path) -> None:
    for remove in (remove_folder, remove_checkpoint):
        (tmp_path / "link").symlink_to(victim)
        remove(tmp_path / "link")
        assert not (tmp_path / "link").is_symlink()
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "folder" / "inside" / "link").symlink_to(victim)
    remove_folder(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_checkpoints_that_are_links_are_neither_emptied_nor_written_through(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (1, 3, 9):  # older than what is kept; the one that is saved; of a future that was given up
        (folder / f"step-{step:08d}").symlink_to(victim)
    path = save(folder, 3, keep=1)
    assert [one.name for one in sorted(folder.glob("step-*"))] == [path.name]
    assert find_damage(path, whole=True) is None
    assert not path.is_symlink()
