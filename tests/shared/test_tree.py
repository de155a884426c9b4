"""A framework's state as tensors and JSON, and back: what comes back is what went in, and no code is run."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shared.checkpoint import tree
from shared.distributed import Refusal

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5)
KEYS = st.text(max_size=4) | st.integers(0, 9)
TREES = st.recursive(
    SCALARS | st.binary(max_size=4),
    lambda children: (
        st.lists(children, max_size=3) | st.tuples(children, children) | st.dictionaries(KEYS, children, max_size=3)
    ),
    max_leaves=12,
)


def there_and_back(value: Any) -> Any:
    tensors, packed = tree.pack_state(value, "It")
    return tree.unpack_state(tensors, json.loads(json.dumps(packed, allow_nan=False)))


@given(TREES)
def test_what_goes_in_comes_out(value: Any) -> None:
    again = there_and_back(value)
    assert again == value
    assert repr(again) == repr(value), "1 is not True, and a tuple is no list"


def test_tensors_keep_their_bits_and_shared_ones_are_kept_once() -> None:
    weight = torch.randn(3, 4, dtype=torch.float64)
    value = {0: {"exp_avg": weight, "step": torch.tensor(2.0)}, "tied": weight, "part": weight[1:], "n": np.arange(3)}
    tensors, packed = tree.pack_state(value, "It")
    assert len(tensors) == 4
    again = tree.unpack_state(tensors, json.loads(json.dumps(packed)))
    assert torch.equal(again[0]["exp_avg"], weight)
    assert again["tied"] is again[0]["exp_avg"]
    assert torch.equal(again["part"], weight[1:])
    assert again["part"].untyped_storage().data_ptr() != weight.untyped_storage().data_ptr()
    assert again["n"].tolist() == [0, 1, 2]


def test_keys_that_look_alike_stay_apart() -> None:
    value = {1: torch.ones(1), "1": torch.zeros(1), "$tensor": "not one"}
    again = there_and_back(value)
    assert (again[1].item(), again["1"].item(), again["$tensor"]) == (1.0, 0.0, "not one")


def test_numbers_that_json_lacks() -> None:
    again = there_and_back({"worst": math.inf, "none": math.nan, "of numpy": np.float32(0.5), "some": {1, 2}})
    assert again["worst"] == math.inf
    assert math.isnan(again["none"])
    assert again["of numpy"] == 0.5
    assert again["some"] == {1, 2}


def test_what_is_hashable_stays_so() -> None:
    value = {"pairs": {frozenset({1, 2}), (3, frozenset())}, "weights": {frozenset({"a"}): 0.5}}
    assert there_and_back(value) == value


def test_an_object_is_refused_by_its_place() -> None:
    with pytest.raises(Refusal, match=r"hyper_parameters\.loss is a torch\.nn\.modules\.loss\.MSELoss"):
        tree.pack_state({"hyper_parameters": {"loss": torch.nn.MSELoss()}}, "The checkpoint")


def test_what_another_program_wrote_is_refused() -> None:
    with pytest.raises(Refusal, match=r"\$object"):
        tree.unpack_state({}, {"$object": "os.system"})
