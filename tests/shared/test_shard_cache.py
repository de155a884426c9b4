"""The node's cache of shards: fetched once, whole or not there, bounded, and no obstacle when its disk is full."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from shared.data.dataset.shard_cache import ShardCache, open_cache
from shared.distributed import Refusal
from shared.training.core.batch_plan import BatchPlan
from tests.helpers import ROOT, clean_environment
from tests.shared.streams import feed_of, rows_of, streamed, write_numbered


def source(folder: Path, name: str, size: int = 1000) -> tuple[Path, str]:
    path = folder / name
    path.write_bytes(name.encode() * (size // len(name)))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> ShardCache:
    (tmp_path / "cache").mkdir()
    return ShardCache(tmp_path / "cache", 10_000)


def start(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *words],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FETCH = """
    import os, resource, signal, sys
    from pathlib import Path
    from shared.data.dataset.shard_cache import ShardCache
    folder, path, sha256, most = sys.argv[1:]
    if most != "-":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
    found = ShardCache(Path(folder), 10**9).fetch(Path(path), sha256)
    print(found and found.stat().st_ino)
"""


def test_processes_of_a_node_fetch_a_file_once(cache: ShardCache, tmp_path: Path) -> None:
    path, sha256 = source(tmp_path, "x.npy", 20_000_000)
    ranks = [start(FETCH, str(tmp_path / "cache"), str(path), sha256, "-") for _ in range(4)]
    inodes = {rank.communicate(timeout=60)[0] for rank in ranks}
    assert len(inodes) == 1, "a second fetch would have put another file in the place of the first"
    assert inodes != {"None\n"}
    path.unlink()
    copy = ShardCache(tmp_path / "cache", 10**9).fetch(path, sha256)
    assert copy is not None
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == sha256


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer"])
def test_a_damaged_copy_is_fetched_again(damage: str, cache: ShardCache, tmp_path: Path) -> None:
    path, sha256 = source(tmp_path, "x.npy")
    copy = cache.fetch(path, sha256)
    assert copy is not None
    content = copy.read_bytes()
    copy.write_bytes({"flipped": b"?" + content[1:], "cut": content[:-1], "longer": content + b"?"}[damage])
    assert cache.fetch(path, sha256) == copy
    assert copy.read_bytes() == content


def test_a_fetch_that_is_killed_leaves_nothing_that_counts(cache: ShardCache, tmp_path: Path) -> None:
    pipe = tmp_path / "x.npy"
    os.mkfifo(pipe)
    sha256 = hashlib.sha256(b"whole").hexdigest()
    rank = start(FETCH, str(tmp_path / "cache"), str(pipe), sha256, "-")
    with pipe.open("wb") as writer:
        writer.write(b"who")
        writer.flush()
        until = time.monotonic() + 30
        while not any(p.stat().st_size == 3 for p in (tmp_path / "cache").glob("*.part")):
            assert time.monotonic() < until
            time.sleep(0.01)
        rank.send_signal(signal.SIGKILL)
        rank.communicate(timeout=30)
    pipe.unlink()
    pipe.write_bytes(b"whole")
    copy = cache.fetch(pipe, sha256)
    assert copy is not None
    assert copy.read_bytes() == b"whole"
    assert not list((tmp_path / "cache").glob("*.part"))


def test_it_is_bounded_and_what_was_used_longest_ago_goes(cache: ShardCache, tmp_path: Path) -> None:
    files = [source(tmp_path, f"{number:04d}", 2400) for number in range(9)]
    for path, sha256 in files:
        assert cache.fetch(*files[0]) is not None  # used again and again
        assert cache.fetch(path, sha256) is not None
        assert sum(found.stat().st_size for found in (tmp_path / "cache").glob("*.npy")) <= 10_000
    kept = {found.stem for found in (tmp_path / "cache").glob("*.npy")}
    assert kept == {files[number][1] for number in (0, 6, 7, 8)}
    assert cache.fetch(*source(tmp_path, "large", 20_000)) is None
    assert {found.stem for found in (tmp_path / "cache").glob("*.npy")} == kept
    assert all(path.exists() for path, _ in files), "only copies are ever removed"


def test_a_full_disk_means_reading_through(cache: ShardCache, tmp_path: Path) -> None:
    path, sha256 = source(tmp_path, "x.npy", 100_000)
    rank = start(FETCH, str(tmp_path / "cache"), str(path), sha256, "50000")
    out, errors = rank.communicate(timeout=60)
    assert (rank.returncode, out) == (0, "None\n"), errors
    assert "shards are read where they lie" in errors
    assert not list((tmp_path / "cache").glob("*.npy"))


def test_a_source_that_is_not_what_was_prepared_is_refused(cache: ShardCache, tmp_path: Path) -> None:
    path, sha256 = source(tmp_path, "x.npy")
    path.write_bytes(b"other")
    with pytest.raises(Refusal, match="its sha256 differs"):
        cache.fetch(path, sha256)
    assert not list((tmp_path / "cache").glob("*.npy"))


def test_where_the_cache_is(tmp_path: Path) -> None:
    assert open_cache(tmp_path, 0, None) is None
    assert open_cache(tmp_path, 1, None) is None, "the data lies on the disk of TMPDIR"
    named = open_cache(tmp_path, 1, str(tmp_path / "cache"))
    assert named is not None
    (tmp_path / "file").touch()
    assert open_cache(tmp_path, 1, str(tmp_path / "file" / "cache")) is None


@pytest.mark.parametrize("in_place", [True, False])
def test_the_same_rows_come_from_a_cache_that_is_too_small(in_place: bool, tmp_path: Path) -> None:
    folder = write_numbered(tmp_path / "data", [20] * 12)
    (tmp_path / "cache").mkdir()
    expected = rows_of(feed_of(streamed(folder, buffer_bytes=960), BatchPlan(10, 1, 1)).epoch(0))
    for capacity in (0, 1500, 10**6):
        data = streamed(folder, buffer_bytes=960, cache=ShardCache(tmp_path / "cache", capacity))
        object.__setattr__(data.streaming, "in_place", in_place)  # type: ignore[attr-defined]
        assert rows_of(feed_of(data, BatchPlan(10, 1, 1)).epoch(0)) == expected
    cut = folder / "train" / "x-00003.npy"
    copies = len(list((tmp_path / "cache").glob("*.npy")))
    assert copies == 24
    cut.write_bytes(cut.read_bytes()[:100])
    assert rows_of(feed_of(data, BatchPlan(10, 1, 1)).epoch(0)) == expected, "what is in the cache is not read again"
    np.testing.assert_array_equal(streamed(folder, buffer_bytes=960).split("train").take(np.array([0]))["y"], [0])


def test_what_others_commit_or_give_up_meanwhile_is_no_obstacle(cache: ShardCache, tmp_path: Path) -> None:
    (tmp_path / "cache" / "gone.part").symlink_to("nowhere")  # listed, and not there when it is looked at
    assert cache.fetch(*source(tmp_path, "x.npy")) is not None


def test_a_copy_that_another_rank_has_removed_before_it_is_mapped_is_read_where_it_lies(tmp_path: Path) -> None:
    class CrowdedCache(ShardCache):
        def fetch(self, source: Path, sha256: str) -> Path | None:
            copy = super().fetch(source, sha256)
            assert copy is not None
            copy.unlink()
            return copy

    folder = write_numbered(tmp_path / "data", [20] * 3)
    (tmp_path / "cache").mkdir()
    data = streamed(folder, buffer_bytes=960, cache=CrowdedCache(tmp_path / "cache", 10**6))
    np.testing.assert_array_equal(data.split("train").take(np.array([41]))["y"], [41])
