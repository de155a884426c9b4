"""Which item goes into which split: stratified, and a pure function of the labels (or the texts) and a seed.

Memory holds a block of items, and a number for each class: the order of the items lies on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shared.data.dataset.order import RowNumbers
from shared.data.write.spool import Spool
from shared.distributed import Refusal

BLOCK_ROWS = 2**16
"""Items looked at together."""

SHUFFLED_ROWS = 2**18
"""Items that are shuffled in memory."""

_Counts = npt.NDArray[np.int64]

Labels: TypeAlias = npt.NDArray[Any] | Spool
"""A class (a whole number) or, for regression, a target for each item."""


def stratified_split(
    labels: Labels, *, validation_fraction: float, test_fraction: float, seed: int
) -> dict[str, Spool]:
    """Item numbers of train, validation and test, each in a random order.

    Validation and test hold the fraction of all items, rounded up, and the classes in proportion (to one item); every
    class keeps at least one item in train.

    Labels and seed are 0 or more; the fractions are shares of all items, 0 or more, and together below 1.

    Raises:
        Refusal: if the items are too few to give every class to train and the fractions to the others.
    """
    random = np.random.default_rng((seed, 0))
    counts = count_labels(labels)
    # By class first: the same items give the same splits whether they lie in folders by class or in one mixed file.
    members, ends = _deal(_blocks(labels), counts), np.cumsum(counts)
    for first, last in pairwise([0, *ends.tolist()]):
        shuffle_items(members, first, last, random)
    taken = np.zeros_like(counts)
    splits: dict[str, Spool] = {}
    for name, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        quota = _quota(counts, spare=counts - taken - 1, fraction=fraction, name=name)
        splits[name] = _gather(members, ends - counts + taken, quota)
        taken = taken + quota
    splits["train"] = _gather(members, ends - counts + taken, counts - taken)
    for name in ("test", "validation", "train"):
        shuffle_items(splits[name], 0, len(splits[name]), random)
    return {name: splits[name] for name in ("train", "validation", "test")}


def count_labels(labels: Labels, classes: int = 0) -> _Counts:
    """Number of items of each class, at least ``classes`` numbers."""
    counts = np.zeros(classes, np.int64)
    for block, _ in _blocks(labels):
        found = np.bincount(block, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return counts


def first_item(labels: Labels, value: int) -> int:
    """Number of the first item with a label, which there is."""
    for block, items in _blocks(labels):
        if (found := block == value).any():
            return int(items[found.argmax()])
    raise ValueError(f"no item has the label {value}")


def shuffle_items(items: Spool, first: int, last: int, random: np.random.Generator) -> None:
    """Put the items from ``first`` to before ``last`` into a random order, each order as likely as any other.

    More than fit into memory are dealt at random to parts, and each part is shuffled by itself: C. R. Rao, "Generation
    of random permutations of given number of elements using random sampling numbers", Sankhya 1961.
    """
    rows = last - first
    if rows <= SHUFFLED_ROWS:
        part = items[first:last]
        random.shuffle(part)
        items.put(first, part)
        return
    parts, draw = 2 * -(-rows // SHUFFLED_ROWS), int(random.integers(2**63))

    def hands() -> Iterator[tuple[npt.NDArray[Any], RowNumbers]]:
        """A part for each item; the same ones at each call."""
        same = np.random.default_rng(draw)
        for start in range(first, last, BLOCK_ROWS):
            block = items[start : min(start + BLOCK_ROWS, last)]
            yield same.integers(parts, size=len(block)), block

    sizes = np.sum([np.bincount(hand, minlength=parts) for hand, _ in hands()], axis=0)
    dealt = _deal(hands(), sizes)
    for start, block in zip(range(first, last, BLOCK_ROWS), dealt.blocks(BLOCK_ROWS), strict=True):
        items.put(start, block)
    for start, end in pairwise([first, *(first + np.cumsum(sizes)).tolist()]):
        shuffle_items(items, start, end, random)


def _blocks(labels: Labels) -> Iterator[tuple[npt.NDArray[Any], RowNumbers]]:
    """Labels and the numbers of their items, a block at a time."""
    for first in range(0, len(labels), BLOCK_ROWS):
        block = labels[first : first + BLOCK_ROWS]
        yield block, np.arange(first, first + len(block))


def _deal(blocks: Iterable[tuple[npt.NDArray[Any], RowNumbers]], counts: _Counts) -> Spool:
    """Items sorted by the key beside each, of which there are ``counts``; among equal keys in the order they came."""
    dealt = Spool((), "int64")
    place = np.cumsum(counts) - counts
    for keys, items in blocks:
        # One byte or two for each key sort in linear time.
        order = np.argsort(keys.astype(np.min_scalar_type(len(counts))), kind="stable")
        found = np.bincount(keys, minlength=len(counts))
        pieces = np.split(items[order], np.cumsum(found)[:-1])
        for key in np.flatnonzero(found).tolist():
            dealt.put(int(place[key]), pieces[key])
        place += found
    return dealt


def _gather(members: Spool, starts: _Counts, lengths: _Counts) -> Spool:
    """Stretches of a spool, one after another."""
    gathered = Spool((), "int64")
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        for first in range(start, start + length, BLOCK_ROWS):
            gathered.append(members[first : min(first + BLOCK_ROWS, start + length)])
    return gathered


def _quota(counts: _Counts, *, spare: _Counts, fraction: float, name: str) -> _Counts:
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
    quota: _Counts = np.minimum(np.floor(exact).astype(np.int64), spare)
    while (missing := wanted - int(quota.sum())) > 0:
        # Stable sort: among equal remainders the class that comes first wins, on every machine.
        urgent = np.argsort(np.where(quota < spare, quota - exact, np.inf), kind="stable")
        quota[urgent[: min(missing, np.count_nonzero(quota < spare))]] += 1
    return quota


@dataclass(frozen=True, slots=True)
class DocumentSplitter:
    """Decides which split a document goes into, from the seed (0 or more) and what the document is called (or says).

    `validation` and `test` are shares of all documents, 0 or more, and together below 1.
    """

    seed: int
    validation: float
    test: float

    def number(self, key: bytes) -> int:
        """A number below 2**64 that looks random."""
        mixed = hashlib.blake2b(key, digest_size=8, key=self.seed.to_bytes(16, "big"))
        return int.from_bytes(mixed.digest(), "big")

    def split_of(self, key: bytes) -> str:
        """The split of one document, each with the probability of its fraction: no other has to be known."""
        at = self.number(key) / 2**64
        return "test" if at < self.test else "validation" if at < self.test + self.validation else "train"

    def split_all(self, keys: Sequence[str], labels: Sequence[str]) -> list[str]:
        """The split of every document, with the fractions as exact as each class allows: one at least in each split.

        Raises:
            Refusal: if a class has too few documents, naming them all.
        """
        splits = ["train"] * len(keys)
        members: dict[str, list[int]] = {}
        for item, label in enumerate(labels):
            members.setdefault(label, []).append(item)
        lacking = []
        for label, items in members.items():
            items.sort(key=lambda item: self.number(keys[item].encode("utf-8", "surrogateescape")))
            test, validation = (_documents_for(fraction, len(items)) for fraction in (self.test, self.validation))
            if test + validation >= len(items):
                lacking.append(f"{f'the class {label!r} has' if label else 'there are'} {len(items)}")
            for place, item in enumerate(items[: test + validation]):
                splits[item] = "test" if place < test else "validation"
        if lacking:
            raise Refusal(
                f"too few documents for validation_fraction {self.validation:g} and test_fraction {self.test:g}: "
                f"{'; '.join(lacking[:8])}. Each split takes one at least: add documents, or set a fraction to 0."
            )
        return splits


def _documents_for(fraction: float, count: int) -> int:
    # The decimal that was typed: as a float, 0.07 * 100 is a little more than 7.
    return max(1, round(Fraction(str(fraction)) * count)) if fraction > 0 else 0
