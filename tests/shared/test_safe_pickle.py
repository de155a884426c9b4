"""The one reader of pickles: it reads what CIFAR is, and whatever could run code is refused before anything happens."""

from __future__ import annotations

import builtins
import os
import pickle
import pickletools
import subprocess
import sys
import tracemalloc
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shared.data.formats.safe_pickle as under_test
from shared.data.formats.safe_pickle import DamagedPickleError, ForeignObjectError, read_pickle
from shared.data.sources import SOURCES, BadFiles, SourceRequest
from shared.distributed import Refusal
from tests.helpers import ROOT
from tests.shared import samples

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=plain, protocol=st.integers(3, 5))
@settings(max_examples=150, deadline=None)
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_come_back_in_every_protocol(protocol: int) -> None:
    for array in (np.arange(12, dtype="uint8").reshape(3, 4), np.arange(6.0, dtype=">f4"), np.zeros((0, 3), "int64"),
                  np.asfortranarray(np.arange(6).reshape(2, 3)), np.array([True, False])):  # fmt: skip
        again = read_pickle(pickle.dumps({"data": array, "labels": [1, 2], b"name": b"\x00\xff"}, protocol))
        np.testing.assert_array_equal(again["data"], array)
        assert again["data"].dtype == array.dtype
        assert again["labels"] == [1, 2]


def test_a_batch_as_python_2_wrote_it() -> None:
    """The instructions of the original files: protocol 2, texts that are bytes, and the array's content as such."""
    batch = (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05(K\x06K\x09e"
        b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09"
        b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x06abcdefq\x0ctbu."
    )
    pickletools.dis(batch, out=open(os.devnull, "w"))  # noqa: SIM115, PTH123  # it is a sound pickle
    read = read_pickle(batch)
    assert read[b"labels"] == [6, 9]
    assert read[b"batch_label"] == b"training batch 1 of 5"
    assert read[b"data"].tobytes() == b"abcdef"
    assert read[b"data"].shape == (2, 3)


class Runs:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, Any]:
        return self.call


def attacks(marker: str) -> dict[str, bytes]:
    """Pickles of which each would make the file `marker`, or reach further, where it is read as usual."""
    touch = f"open({marker!r}, 'w').close()"
    command = f"touch {marker}"
    found = {
        f"{name}, protocol {protocol}": pickle.dumps({b"data": attack, b"labels": [1]}, protocol)
        for protocol in range(6)
        for name, attack in {
            "os.system": Runs(os.system, command),
            "exec": Runs(builtins.exec, touch),
            "eval": Runs(builtins.eval, touch),
            "subprocess": Runs(subprocess.getoutput, command),
            "import": Runs(__import__, "antigravity"),
            "getattr": Runs(getattr, os, "system") if protocol > 5 else Runs(getattr, b"", "hex"),
            "numpy loader": Runs(np.load, marker),
            "numpy runner": Runs(np.fromfile, marker),
            "subclass of dict": OrderedDict(a=1),
        }.items()
    }
    return found | {
        "inst": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\nS'" + command.encode() + b"'\no.",
        "newobj": b"\x80\x02cos\nsystem\nU\x01a\x85\x81.",
        "stack global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x01a\x85R.",
        "name in a name": b"cnumpy\nndarray.__class__\n(S'a'\ntR.",
        "calls a plain name": b"cnumpy\nndarray\n(S'a'\ntR.",
        "calls a text": b"\x80\x02U\x06systemU\x01a\x85R.",
        "state of a list": b"\x80\x02]}U\x01aK\x01sb.",
        "extension": b"\x80\x02\x82\x01.",
        "persistent": b"Pname\n.",
        "an array of objects": pickle.dumps(np.array([Runs(os.system, command)], dtype=object), 2),
        "a record": pickle.dumps(np.zeros(2, [("a", "O"), ("b", "i4")]), 2),
        "a name as a value": b"\x80\x02}U\x04datacnumpy\nndarray\ns.",
        "an encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00rot\x86R.",
    }


@pytest.mark.parametrize("name", sorted(attacks("x")))
def test_attacks_are_refused_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **keywords: object) -> None:
        raise AssertionError(f"the attack got through: {arguments} {keywords}")

    content = attacks(str(tmp_path / "marker"))[name]
    for function in ("system", "popen"):
        monkeypatch.setattr(os, function, never)
    monkeypatch.setattr(subprocess, "getoutput", never)
    with pytest.raises(ForeignObjectError):
        read_pickle(content)
    assert not (tmp_path / "marker").exists()
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(Refusal, match=r"has no place in a CIFAR batch.*Nothing was executed"):
        # Not even where bad files are left out: this is no accident.
        SOURCES["cifar"](SourceRequest("cifar", tmp_path, bad=BadFiles(skip=True)))
    assert not (tmp_path / "marker").exists()


def test_the_reader_imports_no_pickle_and_looks_no_name_up() -> None:
    source = Path(under_test.__file__).read_text(encoding="utf-8")
    for word in ("import pickle\n", "getattr(sys", "__import__", "import_module", "eval(", "exec("):
        assert word not in source
    code = f"""
import sys, io
sys.path.insert(0, {str(ROOT)!r})
events = []
sys.addaudithook(lambda name, args: events.append(name) if name.startswith(("pickle", "exec", "import", "os.", "subprocess")) else None)
from shared.data.formats.safe_pickle import read_pickle, ForeignObjectError
content = b"cos\\nsystem\\n(S'true'\\ntR."
events.clear()
try:
    read_pickle(content)
except ForeignObjectError as error:
    print(error, events)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "os.system []"


@given(position=st.integers(0, 400), byte=st.integers(0, 255), cut=st.booleans())
@settings(max_examples=400, deadline=None)
def test_damage_ends_in_one_of_two_errors(position: int, byte: int, cut: bool) -> None:
    batch = {b"labels": list(range(20)), b"data": np.arange(60, dtype=np.uint8).reshape(20, 3), b"names": [b"a", "b"]}
    content = bytearray(pickle.dumps(batch, 2))
    position %= len(content)
    content[position] = byte
    with suppress(ForeignObjectError, DamagedPickleError):
        read_pickle(bytes(content[: position + 1]) if cut else bytes(content))


@pytest.mark.parametrize(
    "content", [b"", b".", b"garbage", b"\x80\x02}", b"\x80\x02K\x01", b"h\x07.", b"\x80\x02u.",
                b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", b"\x80\x02}]K\x01s."]
)  # fmt: skip
def test_what_is_no_pickle(content: bytes) -> None:
    with pytest.raises(DamagedPickleError):
        read_pickle(content)


def test_a_large_batch_takes_no_more_than_itself() -> None:
    images, labels = samples.digits()
    images = np.tile(samples.enlarged(images[:100]), (20, 1, 1, 1))
    batch = {b"data": images.reshape(-1, 3072), b"labels": np.tile(labels[:100], 20).tolist()}
    read = read_pickle(pickle.dumps(batch, 2))
    np.testing.assert_array_equal(read[b"data"], batch[b"data"])


def test_a_number_in_the_memo_takes_no_memory() -> None:
    """Python's own machine keeps its memo as an array, and would take 2 GB for these nine bytes."""
    tracemalloc.start()
    try:
        assert read_pickle(b"\x80\x02Nr\xff\xff\xff\x07.") is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_lists_in_lists_cannot_be_spelled_out() -> None:
    """Sixty lists, each twice in the next: written as text they would fill any memory."""
    lists = b"]\x94" + b"".join(b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"e\x94" for level in range(60))
    end = b"h" + bytes([60])
    name = b"\x8c\x05numpy\x8c\x05dtype\x93"
    for hostile in (
        end + end + b"\x93.",
        name + end + b"\x85R.",
        b"\x8c\x07_codecs\x8c\x06encode\x93" + end * 2 + b"\x86R.",
    ):
        with pytest.raises(DamagedPickleError, match="a list in the place of a text"):
            read_pickle(b"\x80\x04" + lists + hostile)
