"""Networks of the usual sizes, and trainings that begin with the weights of a saved model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from shared.data import Dataset
from shared.data.write import write_index, write_shard
from shared.distributed import Refusal
from shared.models import ModelCard, build_network
from shared.models.build import NormalisedModel
from shared.models.initial import open_initial
from shared.models.package import save_model
from tests.components.training import train, train_in_turn, weights, write_digits

CARD = ModelCard("mlp", (8, 8, 1), "uint8", tuple("0123456789"), (5.0,), (6.0,))


def small_digits(folder: Path, digits: Path) -> Path:
    """Digits 0 to 4 of a dataset, as a dataset of five classes."""
    data, shards = Dataset.open(digits), {}
    for split in ("train", "validation", "test"):
        arrays = data.split(split).take(np.arange(data.index.rows(split)))
        rows = {name: array[arrays["y"] < 5] for name, array in arrays.items()}
        made = write_shard(folder, split, 0, rows=len(rows["y"]), arrays=data.index.arrays, chunks=[rows])
        shards[split] = (made,)
    write_index(folder, replace(data.index, classes=tuple("01234"), splits=shards))
    return folder


@pytest.mark.slow
def test_a_training_begins_with_a_saved_model_and_has_a_new_head_for_other_classes(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", rows=400)
    five = small_digits(tmp_path / "five", digits)
    still: dict[str, object] = {"learning_rate": 0, "epochs": 1, "batch_size": 20, "seed": 5}
    still["initial_model"] = tmp_path / "first" / "model"
    said = train_in_turn(digits, [(tmp_path / "first", {"epochs": 2}), (tmp_path / "same", still)])
    said_of_five = train(five, tmp_path / "five-classes", **still)[0].stdout
    first, same, other = (weights(tmp_path / name) for name in ("first", "same", "five-classes"))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert "new:" not in said[1]
    assert "new: 5.bias, 5.weight" in said_of_five
    head = {"net.5.weight", "net.5.bias"}
    assert all(torch.equal(first[name], other[name]) for name in first.keys() - head)
    assert {name: len(other[name]) for name in head} == dict.fromkeys(head, 5)


def test_a_model_that_does_not_fit_is_refused_with_the_shapes(tmp_path: Path) -> None:
    from shared.distributed import init
    from shared.training.torch.initial import take_initial_weights

    net = build_network("mlp", (8, 8, 1), 10)
    save_model(tmp_path, NormalisedModel(CARD.mean, CARD.std, net), CARD)
    larger = replace(CARD, input_shape=(9, 9, 1))
    with init() as world, pytest.raises(Refusal, match=r"1\.weight \(256, 64\) here \(256, 81\)\. Only the head"):
        take_initial_weights(tmp_path, build_network("mlp", (9, 9, 1), 10), larger, world)
    for folder, change, said in (
        (tmp_path, {"architecture": "resnet"}, "of architecture mlp; here it is resnet"),
        (tmp_path, {"framework": "keras"}, "of framework torch; here it is keras"),
        (tmp_path, {"mean": (1.0,) * 3}, "takes rows with 1 channels or features; the data has 3"),
        (tmp_path / "none", {}, "holds no model of this library"),
    ):
        with pytest.raises(Refusal, match=said):
            open_initial(folder, replace(CARD, **change))


@pytest.mark.slow
def test_a_keras_model_keeps_its_body_and_small_networks_are_named(tmp_path: Path) -> None:
    from shared.models.keras import build_network as build
    from shared.models.keras import save_model as save
    from shared.training.keras.start import make_initial_model

    card = replace(CARD, framework="keras")
    saved = build(card)
    save(tmp_path, saved, card)
    five = replace(card, classes=tuple("01234"))
    made, found = make_initial_model(tmp_path, replace(five, mean=(1.0,)), "float32", None)
    assert found.mean == card.mean
    differing = [a.shape != b.shape for a, b in zip(saved.weights, made.weights, strict=True)]
    assert differing[-2:] == [True, True]
    assert not any(differing[:-2])
    for one, other in list(zip(saved.weights, made.weights, strict=True))[:-2]:
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    same, _ = make_initial_model(tmp_path, card, "float32", None)
    np.testing.assert_array_equal(same.weights[-2].numpy(), saved.weights[-2].numpy())
    with pytest.raises(Refusal, match=r"resnet18 is in PyTorch alone: choose mlp, resnet, resnet50 here"):
        build(replace(card, architecture="resnet18", input_shape=(32, 32, 1)))
    with pytest.raises(Refusal, match=r"resnet50 of Keras takes images of 32 x 32 and more; these are 8 x 8"):
        build(replace(card, architecture="resnet50"))
    assert build(replace(card, architecture="resnet50", input_shape=(32, 32, 1))).output.shape == (None, 10)
