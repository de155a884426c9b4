"""One index into many shards: the same rows as shard by shard, of any type and place in memory, and nothing kept."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.data.dataset.npy_files import map_npy, read_npy
from shared.data.dataset.reader import JointRows


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    shape=st.sampled_from([(), (3,), (5, 7), (2, 3, 3)]),
    dtype=st.sampled_from(["uint8", "uint16", "float32", "float64", "int64"]),
    data=st.data(),
)
def test_rows_are_those_of_the_arrays(
    lengths: list[int], shape: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    ends = np.cumsum(lengths)
    starts = np.concatenate([[0], ends])
    whole = np.random.default_rng(0).integers(0, 200, (int(ends[-1]), *shape)).astype(dtype)
    some = data.draw(st.sets(st.integers(0, len(lengths) - 1), min_size=1))
    joint = JointRows({n: whole[starts[n] : starts[n + 1]].copy() for n in some}, starts)
    rows = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in some])
    rows = rows[data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20).map(lambda at: np.array(at, int)))]
    found = joint.rows[joint.index(np.searchsorted(ends, rows, side="right"), rows)]
    assert (found.dtype, found.shape) == (whole.dtype, (len(rows), *shape))
    np.testing.assert_array_equal(found, whole[rows])


class Watched(np.ndarray):
    """An array that can be seen to go."""


def test_a_view_holds_the_arrays_and_nothing_else_does() -> None:
    gc.disable()  # a cycle would hold what is mapped until the next collection
    try:
        array = np.arange(6.0).view(Watched)
        gone = weakref.ref(array)
        rows = JointRows({0: array}, np.array([0, 6])).rows
        del array
        assert gone() is not None
        np.testing.assert_array_equal(rows, np.arange(6.0))
        del rows
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_is_mapped_whatever_its_header_says(whole: bool, tmp_path: Path) -> None:
    path, array = tmp_path / "x.npy", np.arange(12.0).reshape(3, 4)
    for saved in (array, np.asfortranarray(array), array.astype("f4"), array.astype(">f8"), array[:2], array[:0]):
        np.save(path, saved)
        for found in (map_npy(path, (3, 4), "float64", whole=whole), read_npy(path, (3, 4), "float64")):
            assert found.flags.c_contiguous
            assert found.dtype.isnative
            np.testing.assert_array_equal(found, saved)
    for found in (map_npy(path, (0, 4), "float64", whole=whole), read_npy(path, (0, 4), "float64")):
        assert found.shape == (0, 4)
    np.save(path, array)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"size|shape|length"):
        map_npy(path, (3, 4), "float64", whole=whole)
