"""Where documents come from, by the name that the input `dataset` of prepare_text has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from shared.data.sources import BadFiles
from shared.data.text.csv_rows import CsvRows
from shared.data.text.documents import Documents, Request
from shared.data.text.files import open_files, open_stdlib
from shared.data.text.json_lines import JsonLines
from shared.data.text.parquet_rows import ParquetRows
from shared.data.text.rows import open_rows

SOURCES: Mapping[str, Callable[[Request], Documents]] = MappingProxyType(
    {
        "stdlib": open_stdlib,
        "files": open_files,
        "jsonl": lambda request: open_rows(request, JsonLines()),
        "csv": lambda request: open_rows(request, CsvRows(request.most_bytes)),
        "parquet": lambda request: open_rows(request, ParquetRows()),
    }
)

LEARNT_BYTES = 256 * 2**20
"""Of text that a vocabulary is learnt from, at most: more changes it hardly."""


def texts_to_learn_from(source: Documents) -> Iterator[str]:
    """Texts of the train split: all, or those of some units from the whole of the data.

    What cannot be used is passed over; it is reported when the documents are read for the dataset.
    """
    step = -(-sum(source.sizes) // LEARNT_BYTES)
    left = LEARNT_BYTES
    for unit in range(0, len(source.sizes), max(1, step)):
        for document in source.read(unit, BadFiles(skip=True)):
            if document.split == "train":
                yield document.text
                left -= len(document.text)
                if left < 0:
                    return
