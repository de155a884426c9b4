"""The second pass: from what all nodes found to the shards of the dataset; a node writes those of its own units.

A shard never holds rows of two units, so the shards depend on the data alone. The last block of a unit goes on in the
units after it; where these are another node's, its first tokens are needed, and no more: every node tells them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import SPLITS, Array, Shard
from shared.data.dataset.ragged import Ragged
from shared.data.text.documents import DocumentSource
from shared.data.text.encode import EncodedUnit, RowLayout, UnitCounts
from shared.data.write.request import BadFile
from shared.data.write.writer import SHARD_BYTES, ShardJob, plan_split, write_ragged_shard, write_shard

_CHUNK_TOKENS = 2**20


def token_arrays(layout: RowLayout) -> dict[str, Array]:
    """The dataset's arrays."""
    if layout.labelled:
        return {"x": Array((), layout.dtype, ragged=True), "y": Array((), "int64")}
    return {"x": Array((layout.sequence_length + 1,), layout.dtype)}


def plan_tokens(
    parts: Sequence[dict[str, UnitCounts]], layout: RowLayout, rows_per_shard: int | None
) -> list[ShardJob]:
    """Every shard of the dataset, in order: a function of what the units gave to each split and of the layout alone.

    Without ``rows_per_shard`` files have about 16 MiB.
    """
    row_bytes = (layout.sequence_length + 1) * np.dtype(layout.dtype).itemsize
    size = rows_per_shard or max(1, SHARD_BYTES // row_bytes)
    return [job for split in SPLITS for job in plan_split(split, _unit_rows(parts, split, layout), size)]


def _unit_rows(parts: Sequence[dict[str, UnitCounts]], split: str, layout: RowLayout) -> list[range]:
    """Rows of each unit: passages, numbered in the unit; or blocks, numbered in the split."""
    if layout.labelled:
        return [range(part[split].rows) for part in parts]
    length, ends = layout.sequence_length, list(accumulate((part[split].tokens for part in parts), initial=0))
    blocks = max(0, (ends[-1] - 1) // length)  # the first token is not predicted
    return [range(min(blocks, -(-begin // length)), min(blocks, -(-end // length))) for begin, end in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node has found, for all of them: of each of its units in order what it gave to each split.

    `heads` maps a split to its first tokens, as many as the last block of the node before can need; the `digest` is of
    the units' sizes, which have to be the same on every node.
    """

    units: list[dict[str, UnitCounts]]
    bad: list[BadFile]
    heads: dict[str, list[int]]
    digest: str

    @classmethod
    def of(
        cls, encoded: Sequence[EncodedUnit], bad: Sequence[BadFile], layout: RowLayout, source: DocumentSource
    ) -> NodeReport:
        """What a node with these units tells the others."""
        longest = 0 if layout.labelled else layout.sequence_length + 1
        streams = {split: _Stream(encoded, split, layout) for split in SPLITS}
        heads = {split: stream.read(0, min(longest, stream.tokens)).tolist() for split, stream in streams.items()}
        every_bad = [*bad, *(file for one in encoded for file in one.bad)]
        return cls([one.parts for one in encoded], every_bad, heads, sha256(repr(source.sizes).encode()).hexdigest())

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> NodeReport:
        """From what ``asdict`` makes of it, for the other nodes."""
        units = [{split: UnitCounts(**part) for split, part in unit.items()} for unit in record["units"]]
        return cls(units, [BadFile(**file) for file in record["bad"]], record["heads"], record["digest"])


class TokenShardWriter:
    """Writes the shards of the units that a node has encoded; ``node`` is its place among all nodes' reports."""

    def __init__(
        self,
        output: Path,
        encoded: Sequence[EncodedUnit],
        nodes: Sequence[NodeReport],
        node: int,
        classes: Sequence[str],
        layout: RowLayout,
    ) -> None:
        self._output, self._encoded, self._layout = output, encoded, layout
        self._numbers = {name: number for number, name in enumerate(classes)}
        self._arrays = token_arrays(layout)
        before = [unit for one in nodes[:node] for unit in one.units]
        self.units = range(len(before), len(before) + len(encoded))
        self._begin = {split: sum(unit[split].tokens for unit in before) for split in SPLITS}
        self._streams = {
            split: _Stream(encoded, split, layout, [id_ for one in nodes[node + 1 :] for id_ in one.heads[split]])
            for split in SPLITS
        }

    def write(self, job: ShardJob) -> Shard:
        """Write a shard of one of the node's units."""
        return self._passages(job) if self._layout.labelled else self._blocks(job)

    def _blocks(self, job: ShardJob) -> Shard:
        length, stream, begin = self._layout.sequence_length, self._streams[job.split], self._begin[job.split]
        step = max(1, _CHUNK_TOKENS // length)

        def chunks() -> Iterator[dict[str, npt.NDArray[Any]]]:
            for first in range(job.first, job.last, step):
                last = min(first + step, job.last)
                tokens = stream.read(first * length - begin, last * length + 1 - begin)
                yield {"x": np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length]}

        shard = write_shard(self._output, job.split, job.number, rows=job.rows, arrays=self._arrays, chunks=chunks())
        assert shard is not None  # noqa: S101  # a job has rows
        return shard

    def _passages(self, job: ShardJob) -> Shard:
        one = self._encoded[job.unit - self.units.start]
        token, row = one.first[job.split]
        spools, rows = one.spools, slice(row + job.first, row + job.last)
        lengths = spools.lengths[job.split][rows].astype(np.int64)
        start = token + int(spools.lengths[job.split][row : row + job.first].sum(dtype=np.int64))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        x = Ragged(spools.tokens[job.split][start : start + int(offsets[-1])], offsets)
        numbers = np.array([self._numbers[name] for name in one.classes], np.int64)
        y = numbers[spools.labels[job.split][rows]]
        return write_ragged_shard(self._output, job.split, job.number, x=x, y=y, arrays=self._arrays)


class _Stream:
    """The tokens of a split on a node, as if they lay in one file, and some that follow on other nodes."""

    def __init__(
        self, encoded: Sequence[EncodedUnit], split: str, layout: RowLayout, after: Sequence[int] = ()
    ) -> None:
        self._encoded, self._split = encoded, split
        self._ends = [0, *accumulate(one.parts[split].tokens for one in encoded)]
        self._after = np.array(after, layout.dtype)

    @property
    def tokens(self) -> int:
        """Their number, without those that follow."""
        return self._ends[-1]

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        """Tokens by number, from the node's first."""
        pieces = []
        for unit in range(max(0, bisect_right(self._ends, first) - 1), len(self._encoded)):
            one, begin, end = self._encoded[unit], self._ends[unit], self._ends[unit + 1]
            if begin >= last:
                break
            start = one.first[self._split][0] - begin
            pieces.append(one.spools.tokens[self._split][max(first, begin) + start : min(last, end) + start])
        tokens = np.concatenate([*pieces, self._after[max(0, first - self.tokens) : max(0, last - self.tokens)]])
        assert len(tokens) == last - first, (first, last, self._ends)  # noqa: S101  # ours to keep
        return tokens
