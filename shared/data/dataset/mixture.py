"""Several datasets of one schema as one, whose rows come in the proportion of weights.

Places of the training are counted from its start, in blocks of `BLOCK_ROWS`. Each block has the same number of rows of
each dataset, at places that (seed, number of the block) decide; so how many came before any place is known without
counting. A dataset's rows come pass after pass, each in an order of its own: none is seen twice before all are seen
once, whatever the weights and wherever an epoch ends. An epoch has as many rows as all datasets together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Index
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.reader import Dataset, RowCopier, RowsBetween, Split
from shared.distributed import Refusal

BLOCK_ROWS = 1000
"""So that a weight is exact to a thousandth of their sum."""

_OF_BLOCK = 3
"""Word that keeps the random numbers of blocks apart from those of epochs."""

_NEXT_SEED = 2**32
"""Seeds are below; each dataset but the first has one of its own."""


@dataclass(frozen=True)
class MixedDataset(Dataset):
    """The train split of some datasets; the index, the validation and the test split are those of the first.

    There are as many `weights` as datasets, each above 0.
    """

    mixed: tuple[Dataset, ...] = ()
    weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, datasets: Sequence[Dataset], weights: Sequence[float] | None) -> MixedDataset:
        """Mix datasets; without weights in proportion to their rows.

        Raises:
            Refusal: if they are not of one schema, or if the weights do not fit.
        """
        first = datasets[0]
        problems = [text for other in datasets[1:] for text in _differences(first, other)]
        if problems:
            raise Refusal(f"These datasets cannot be mixed: {'; '.join(problems)}.")
        rows = [data.split("train").rows for data in datasets]
        return cls(first.folder, first.index, first.access, tuple(datasets), tuple(weights or map(float, rows)))

    @property
    def train_digest(self) -> str:
        """Of all datasets, in their order."""
        return "; ".join(data.train_digest for data in self.mixed)

    def split(self, name: str) -> Split:
        """Rows of a split; those for training come from all datasets."""
        if name != "train":
            return self.mixed[0].split(name)
        return MixedSplit.of([data.split(name) for data in self.mixed], self.weights)


def _differences(first: Dataset, other: Dataset) -> Iterator[str]:
    """What of two datasets would have to be the same."""
    for (what, one), (_, two) in zip(_schema(first.index), _schema(other.index), strict=True):
        if one != two:
            yield f"{what} of {other.folder} is {two!r:.200}, of {first.folder} it is {one!r:.200}"


def _schema(index: Index) -> Iterator[tuple[str, object]]:
    """What rows that go into one batch have in common."""
    text, target = index.text, index.target
    yield "the task", index.task
    yield "a row's shape and type", {name: (array.shape, array.dtype) for name, array in index.arrays.items()}
    yield "the list of classes", index.classes
    yield "the list of columns", index.columns
    yield "the values of its categories", tuple((c.name, c.values) for c in index.table.columns) if index.table else ()
    yield "the target", target.name if target else None
    yield "the tokenizer", text.fingerprint if text else None
    yield "the input documents", text.documents if text else None


@dataclass
class MixedSplit(Split):
    """Rows of several splits, numbered one split after the other; of each, `quotas` in a block of the training."""

    mixed: tuple[Split, ...] = field(kw_only=True)
    quotas: RowNumbers = field(kw_only=True)

    def __post_init__(self) -> None:
        self._ends = np.cumsum([split.rows for split in self.mixed])
        self.starts = self._ends - [split.rows for split in self.mixed]

    @classmethod
    def of(cls, splits: Sequence[Split], weights: Sequence[float]) -> MixedSplit:
        """Mix splits by weights."""
        one, quotas = splits[0], share_out(weights, BLOCK_ROWS)
        return cls(one.name, one.folder, one.arrays, (), one.padding, one.access, mixed=tuple(splits), quotas=quotas)

    def _from_memory(self) -> Split:
        return replace(self, access="memory", mixed=tuple(replace(split, access="memory") for split in self.mixed))

    @property
    def held(self) -> bool:
        """Whether there is nothing to read ahead in any of them."""
        return all(split.held for split in self.mixed)

    @property
    def order_name(self) -> int | str:
        """The rows of each, and how many there are in a block."""
        names = [
            f"{quota} of {split.order_name}" for quota, split in zip(self.quotas.tolist(), self.mixed, strict=True)
        ]
        return f"in each {BLOCK_ROWS}: {'; '.join(names)}"

    def _places_of_batches(self, batch_size: int, seed: int, epoch: int) -> RowsBetween:
        """No place of the training is dropped between two epochs."""
        places, before = _MixedPlaces(self, seed), epoch * (self.rows // batch_size * batch_size)
        return lambda first, last: places.rows_between(before + first, before + last)

    def take(self, indices: RowNumbers, copy: RowCopier = operator.getitem) -> dict[str, npt.NDArray[Any]]:
        """Copy rows, as `Split.take` does; where rows differ in length, they are filled up to the longest of all."""
        indices = np.asarray(indices)
        of = np.searchsorted(self._ends, indices, side="right")
        places = [np.flatnonzero(of == number) for number in range(len(self.mixed))]
        found = [
            (place, split.take(indices[place] - start, copy))
            for place, split, start in zip(places, self.mixed, self.starts.tolist(), strict=True)
            if len(place)
        ]
        return {name: self._joined(name, [(place, one[name]) for place, one in found]) for name in found[0][1]}

    def _joined(self, name: str, parts: list[tuple[RowNumbers, npt.NDArray[Any]]]) -> npt.NDArray[Any]:
        rows, one = sum(len(place) for place, _ in parts), parts[0][1]
        ragged = name in self.arrays and self.arrays[name].ragged
        shape = (max(part.shape[1] for _, part in parts),) if ragged else one.shape[1:]
        joined = np.full((rows, *shape), self.padding, one.dtype) if ragged else np.empty((rows, *shape), one.dtype)
        for place, part in parts:
            if ragged:
                joined[place, : part.shape[1]] = part
            else:
                joined[place] = part
        return joined


class _MixedPlaces:
    """Which rows come at which places of a training, asked for one place after the other."""

    def __init__(self, split: MixedSplit, seed: int) -> None:
        self._split, self._seed = split, seed
        self._passes: list[tuple[int, RowsBetween]] = [(-1, lambda *_: np.empty(0, np.int64)) for _ in split.mixed]
        self._block = (-1, np.empty(0, np.int64))

    def rows_between(self, first: int, last: int) -> RowNumbers:
        """Numbers of the rows from a place of the training to before another."""
        blocks = range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS))
        edges = [(block, max(first, block * BLOCK_ROWS), min(last, (block + 1) * BLOCK_ROWS)) for block in blocks]
        return np.concatenate([self._rows_of_block(block, begin, end) for block, begin, end in edges])

    def _rows_of_block(self, block: int, begin: int, end: int) -> RowNumbers:
        if self._block[0] != block:
            each = np.repeat(np.arange(len(self._split.mixed)), self._split.quotas)
            self._block = block, np.random.default_rng((self._seed, block, _OF_BLOCK)).permutation(each)
        begin, end = begin - block * BLOCK_ROWS, end - block * BLOCK_ROWS
        of = self._block[1][begin:end]
        rows = np.empty(end - begin, np.int64)
        for number, quota in enumerate(self._split.quotas.tolist()):
            before = block * quota + np.count_nonzero(self._block[1][:begin] == number)
            mine = of == number
            rows[mine] = self._rows_of_dataset(number, int(before), int(before + np.count_nonzero(mine)))
        return rows

    def _rows_of_dataset(self, number: int, first: int, last: int) -> RowNumbers:
        """Rows of one dataset, by how many of it came before: pass after pass."""
        count, start = self._split.mixed[number].rows, self._split.starts[number]
        found = [np.empty(0, np.int64)]
        while first < last:
            through = first // count
            if self._passes[number][0] != through:
                places = self._split.mixed[number].epoch_places(self._seed + _NEXT_SEED * number, through)
                self._passes[number] = through, places
            end = min(last, (through + 1) * count)
            found.append(self._passes[number][1](first - through * count, end - through * count) + start)
            first = end
        return np.concatenate(found)


def share_out(weights: Sequence[float], total: int) -> RowNumbers:
    """Whole numbers that add up to a total in the proportion of weights, each 1 or more: those cut most are raised."""
    exact = np.array(weights, np.float64) / np.sum(weights) * (total - len(weights))
    shares = np.floor(exact).astype(np.int64)
    left = total - len(weights) - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:left]] += 1
    return shares + 1


def read_weights(text: str | None, count: int) -> list[float] | None:
    """Read weights such as 0.7,0.2,0.1, one for each of so many datasets; None: none are given.

    Raises:
        Refusal: if they are not as many numbers above 0.
    """
    if text is None:
        return None
    try:
        weights = [float(word) for word in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != count or not all(0 < weight < math.inf for weight in weights):
        raise Refusal(
            f"data_weights {text!r}: {count} numbers above 0 are needed, for data, data_2, data_3 and data_4 in order, "
            f"with commas between them, such as {','.join(['1'] * count)}; without any, that of their rows holds."
        )
    return weights
