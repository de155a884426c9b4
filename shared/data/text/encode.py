"""The first pass: a node reads its units and keeps their tokens in temporary files, with all cores at once."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np

from shared.data.dataset.index import SPLITS
from shared.data.text.documents import Document, DocumentSource
from shared.data.text.tokens import Ids, Tokens
from shared.data.write.request import BadFile, BadFiles
from shared.data.write.spool import Spool

BATCH_CHARACTERS, BATCH_DOCUMENTS = 2**20, 4096
"""What a tokenizer is given at a time, at most."""

_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How texts become rows: labelled ones are passages with a class, the others blocks of one long text.

    `sequence_length` are the tokens that are predicted in a row, or the most tokens of a passage.
    """

    tokens: Tokens
    sequence_length: int
    labelled: bool
    documents: str = "joined"

    @property
    def dtype(self) -> str:
        """The smallest type that a shard holds token ids in."""
        return "uint16" if self.tokens.vocabulary <= 2**16 else "int32"


@dataclass(slots=True)
class UnitCounts:
    """What a unit gives to one split: numbers of documents, and of tokens with those that end a text.

    Sizes are bytes of the texts as UTF-8, and after gzip (joined; 0 for passages); `classes` are passages of each class
    by its name, none for a language model.
    """

    documents: int = 0
    tokens: int = 0
    size: int = 0
    gzip_size: int = 0
    classes: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of passages."""
        return sum(self.classes.values())


class TokenSpools:
    """A worker's temporary files: tokens of each split, one after another; for passages also their lengths and classes.

    A worker has one unit at a time, so what a unit gives to a split lies together.
    """

    def __init__(self, layout: RowLayout) -> None:
        self.tokens = {split: Spool((), layout.dtype) for split in SPLITS}
        self.lengths = {split: Spool((), "int32") for split in SPLITS}
        self.labels = {split: Spool((), "int32") for split in SPLITS}


@dataclass(frozen=True, slots=True)
class EncodedUnit:
    """What became of a unit: what each split got, the documents left out, and the spools where the tokens lie.

    `first` maps a split to the number of the unit's first token and of its first passage in the spools; the labels in
    these number the `classes`.
    """

    parts: dict[str, UnitCounts]
    bad: tuple[BadFile, ...]
    spools: TokenSpools
    first: dict[str, tuple[int, int]]
    classes: tuple[str, ...]


def encode_units(
    source: DocumentSource, units: Sequence[int], layout: RowLayout, policy: BadFiles, progress: Callable[[int], None]
) -> Iterator[EncodedUnit]:
    """Read units and keep their tokens; what became of each, in the order asked.

    Threads do: files, compression and tokenizers let others run meanwhile. ``progress`` is told each second and
    after each unit how many bytes of text there were so far.
    """
    local, stop = threading.local(), threading.Event()
    done: list[int] = []  # bytes of each batch: threads may append to a list without a lock

    def work(unit: int) -> EncodedUnit:
        if not hasattr(local, "spools"):
            local.spools = TokenSpools(layout)
        bad = BadFiles(policy.skip, policy.folder)
        encoder = _Encoder(layout, local.spools)
        for batch in _batches(source.read(unit, bad)):
            if stop.is_set():
                break
            done.append(encoder.add(batch))
        return encoder.finish(tuple(bad.found))

    with ThreadPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), len(units)))) as pool:
        futures = [pool.submit(work, unit) for unit in units]
        try:
            for future in futures:
                while not wait([future], timeout=1).done:
                    progress(sum(done))
                progress(sum(done))
                yield future.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


class _Encoder:
    """Puts the documents of one unit into the spools of a worker."""

    def __init__(self, layout: RowLayout, spools: TokenSpools) -> None:
        self._layout, self._spools = layout, spools
        self._parts = {split: UnitCounts() for split in SPLITS}
        self._packers = {split: zlib.compressobj(9, wbits=_GZIP) for split in SPLITS}
        self._codes: dict[str, int] = {}  # numbers of the classes, in the order in which they first come
        self._first = {split: (len(spools.tokens[split]), len(spools.lengths[split])) for split in SPLITS}

    def add(self, batch: list[Document]) -> int:
        """Put some documents there; how many bytes they have."""
        tokens, texts = self._layout.tokens, [document.text for document in batch]
        if self._layout.labelled:
            rows = tokens.passages(texts, self._layout.sequence_length)
        else:
            end = np.array([tokens.end_of_text])
            rows = [[ids, end] for ids in tokens.encode(texts)]
        size = 0
        for split in SPLITS:
            mine = [item for item, document in enumerate(batch) if document.split == split]
            if mine:
                size += self._add(split, [batch[item] for item in mine], [rows[item] for item in mine])
        return size

    def finish(self, bad: tuple[BadFile, ...]) -> EncodedUnit:
        """What became of the unit."""
        for split, part in self._parts.items():
            if part.gzip_size:
                part.gzip_size += len(self._packers[split].flush())
        return EncodedUnit(self._parts, bad, self._spools, self._first, tuple(self._codes))

    def _add(self, split: str, documents: list[Document], rows: list[list[Ids]]) -> int:
        part, joined = self._parts[split], np.concatenate([ids for found in rows for ids in found])
        self._spools.tokens[split].append(joined)
        texts = "".join(document.text for document in documents).encode()
        part.documents += len(documents)
        part.tokens += len(joined)
        part.size += len(texts)
        if not self._layout.labelled:
            part.gzip_size += len(self._packers[split].compress(texts))
            return len(texts)
        labels = [document.label for document, found in zip(documents, rows, strict=True) for _ in found]
        for label in labels:
            part.classes[label] = part.classes.get(label, 0) + 1
        codes = [self._codes.setdefault(label, len(self._codes)) for label in labels]
        self._spools.lengths[split].append(np.array([len(ids) for found in rows for ids in found], np.int32))
        self._spools.labels[split].append(np.array(codes, np.int32))
        return len(texts)


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Documents, some at a time."""
    batch: list[Document] = []
    held = 0
    for document in documents:
        batch.append(document)
        held += len(document.text)
        if held >= BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
