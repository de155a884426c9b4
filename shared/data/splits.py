"""Which item goes into which split: stratified, and a pure function of the labels and a seed."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.order import Rows
from shared.distributed import Refusal


def stratified_split(
    labels: npt.NDArray[np.integer[Any]], *, validation_fraction: float, test_fraction: float, seed: int
) -> dict[str, Rows]:
    """Item numbers of train, validation and test, each in a random order.

    Validation and test hold the fraction of all items, rounded up, and the classes in proportion (to one item); every
    class keeps at least one item in train.

    Args:
        labels: class of each item, 0 or more.
        validation_fraction: share of all items, from 0 up to but without 1.
        test_fraction: likewise; the two together stay below 1.
        seed: 0 or more.

    Raises:
        Refusal: if the items are too few to give every class to train and the fractions to the others.
    """
    random = np.random.default_rng((seed, 0))
    counts = count(labels)
    # One byte or two for each label sort in linear time, and the order of the items between classes does not matter:
    # the same items give the same splits whether they lie in folders by class or in one mixed file.
    order = np.argsort(labels.astype(np.min_scalar_type(len(counts))), kind="stable")
    members = np.split(order, np.cumsum(counts)[:-1])
    for member in members:
        random.shuffle(member)  # a view: 5 million items are 40 MB, once
    taken = np.zeros_like(counts)
    splits: dict[str, Rows] = {}
    for name, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        quota = _quota(counts, spare=counts - taken - 1, fraction=fraction, name=name)
        splits[name] = np.concatenate([m[t : t + q] for m, t, q in zip(members, taken, quota, strict=True)])
        taken = taken + quota
    splits["train"] = np.concatenate([m[t:] for m, t in zip(members, taken, strict=True)])
    for name in ("test", "validation", "train"):
        random.shuffle(splits[name])
    return {name: splits[name] for name in ("train", "validation", "test")}


def count(labels: npt.NDArray[Any], classes: int = 0) -> npt.NDArray[np.int64]:
    """Number of items of each class, piece by piece: NumPy widens what it counts to eight bytes."""
    classes = max(classes, int(labels.max()) + 1 if len(labels) else 0)
    pieces = np.array_split(labels, len(labels) // 2**20 + 1)
    return np.sum([np.bincount(piece, minlength=classes) for piece in pieces], axis=0)


def _quota(
    counts: npt.NDArray[np.int64], *, spare: npt.NDArray[np.int64], fraction: float, name: str
) -> npt.NDArray[np.int64]:
    """Items of each class for one split: proportional, largest remainders first, never more than can be spared."""
    total = int(counts.sum())
    # The decimal that was typed: 0.07 * 100 is 7.000000000000001 as a float, and would round up to 8.
    wanted = ceil(Fraction(str(fraction)) * total)
    spare = np.maximum(spare, 0)
    if wanted > spare.sum():
        raise Refusal(
            f"{name}_fraction {fraction} takes {wanted} of {total} items, but only {spare.sum()} can be spared: every "
            f"one of the {np.count_nonzero(counts)} classes keeps one for train. Give a smaller fraction or more data."
        )
    exact = counts * (wanted / total)
    quota: npt.NDArray[np.int64] = np.minimum(np.floor(exact).astype(np.int64), spare)
    while (missing := wanted - int(quota.sum())) > 0:
        # Stable sort: among equal remainders the class that comes first wins, on every machine.
        urgent = np.argsort(np.where(quota < spare, quota - exact, np.inf), kind="stable")
        quota[urgent[: min(missing, np.count_nonzero(quota < spare))]] += 1
    return quota
