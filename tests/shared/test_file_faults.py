"""What lies in a user's folder and is no file that can be read: one message each, and nobody waits for a pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shared.data.formats.file_format import find_file_fault
from shared.data.sources import SOURCES, BadFiles, SourceRequest
from shared.data.text.sources import TEXT_SOURCES
from shared.data.write.splits import DocumentSplitter
from shared.distributed import Refusal

TABLE = "a,b,target\n" + "1,2,x\n3,4,y\n" * 4


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_folder(path: Path) -> None:
    path.mkdir()


FAULTS: tuple[tuple[Callable[[Path], None], str], ...] = (
    (make_pipe, "is a pipe, not a file"),
    (make_loop, "cannot be read: Too many levels of symbolic links"),
)


@pytest.mark.parametrize(("make", "says"), FAULTS)
@pytest.mark.parametrize(("dataset", "name"), [("npy", "x.npy"), ("csv", "b.csv"), ("parquet", "b.parquet")])
def test_what_is_no_file_is_refused_before_it_is_opened(
    tmp_path: Path, dataset: str, name: str, make: Callable[[Path], None], says: str
) -> None:
    np.save(tmp_path / "y.npy", np.arange(4))
    (tmp_path / "a.csv").write_text(TABLE)
    make(tmp_path / name)
    with pytest.raises(Refusal, match=f"{name} {says}"):
        SOURCES[dataset](SourceRequest(dataset, tmp_path, bad=BadFiles()))


@pytest.mark.parametrize(("make", "says"), FAULTS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.txt"])
def test_texts_likewise(tmp_path: Path, name: str, make: Callable[[Path], None], says: str) -> None:
    make(tmp_path / name)
    dataset = {".txt": "files", ".jsonl": "jsonl"}.get(Path(name).suffix, Path(name).suffix[1:])
    with pytest.raises(Refusal, match=f"{name} {says}"):
        read_texts(SourceRequest(dataset, tmp_path, False, DocumentSplitter(0, 0, 0)))


def read_texts(request: SourceRequest) -> None:
    """Open the source and read its first unit."""
    source = TEXT_SOURCES[request.dataset](request)
    list(source.read(0, BadFiles(folder=request.find_files()[0])))


@pytest.mark.parametrize(("make", "says"), [*FAULTS, (make_folder, "is a folder, not a file")])
def test_images_likewise(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    images = tmp_path / "images"
    (images / "a").mkdir(parents=True)
    Image.new("L", (4, 4)).save(images / "a" / "1.png")
    make(tmp_path / "thing")
    (images / "a" / "2.png").symlink_to(tmp_path / "thing")
    bad = BadFiles(skip=True)
    source = SOURCES["image_folder"](SourceRequest("image_folder", images, bad=bad))
    assert len(source.read(np.arange(2), bad)) == 1
    assert [(file.path, file.reason) for file in bad.found] == [("a/2.png", says)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NU",
        b"\x93NUMPY\x01\x00v\x00" + b"(" * 118,  # the tokenizer's error
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (True, 4), }".ljust(118),
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**30, 4), }".ljust(118),
        b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9" * 2,
    ],
)
def test_a_cut_or_damaged_npy_is_one_message(tmp_path: Path, content: bytes) -> None:
    np.save(tmp_path / "y.npy", np.arange(4))
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(Refusal, match=r"x\.npy cannot be read: "):
        SOURCES["npy"](SourceRequest("npy", tmp_path))


def test_names_that_are_not_utf_8_are_shown_and_refused_where_text_is_needed(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff.csv"
    Path(os.fsdecode(odd)).write_text(TABLE)
    with pytest.raises(Refusal, match=r"/\\xff\.csv has a name that is not UTF-8: rename it"):
        SOURCES["csv"](SourceRequest("csv", tmp_path))
    (images := tmp_path / "images").mkdir()
    (folder := Path(os.fsdecode(os.fsencode(images) + b"/\xfe"))).mkdir()
    Image.new("L", (4, 4)).save(folder / "1.png")
    with pytest.raises(Refusal, match=r"images/\\xfe has a name that is not UTF-8"):
        SOURCES["image_folder"](SourceRequest("image_folder", images))
    assert find_file_fault(tmp_path / "nothing") == "cannot be read: No such file or directory"
