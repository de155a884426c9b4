"""Where documents come from, by the name that the input `dataset` of prepare_text has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from shared.data.formats import FORMATS
from shared.data.text.documents import DocumentSource
from shared.data.text.files import open_files, open_stdlib
from shared.data.text.rows import open_rows
from shared.data.write.request import BadFiles, SourceRequest

TEXT_SOURCES: Mapping[str, Callable[[SourceRequest], DocumentSource]] = MappingProxyType(
    {
        "stdlib": open_stdlib,
        "files": open_files,
        **{name: partial(open_rows, form=form) for name, form in FORMATS.items()},
    }
)
"""A further source is a file with a function that opens it, and a line here; for a format of rows, one in FORMATS."""

_LEARNT_BYTES = 256 * 2**20
"""Of text that a vocabulary is learnt from, at most: more changes it hardly."""


def texts_to_learn_from(source: DocumentSource) -> Iterator[str]:
    """Texts of the train split: all, or those of some units from the whole of the data.

    What cannot be used is passed over; it is reported when the documents are read for the dataset.
    """
    step = -(-sum(source.sizes) // _LEARNT_BYTES)
    left = _LEARNT_BYTES
    for unit in range(0, len(source.sizes), max(1, step)):
        for document in source.read(unit, BadFiles(skip=True)):
            if document.split == "train":
                yield document.text
                left -= len(document.text)
                if left < 0:
                    return
