"""Where items with labels come from: one file for each kind of source, all with the interface of ``ItemSource``.

A further source is a file with a function that opens it, and a line in ``SOURCES``; a table in another format of files
is a line in ``formats.FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from shared.data.formats import TABLE_FORMATS
from shared.data.sources.digits import open_digits
from shared.data.sources.image_folder import ImageFolder
from shared.data.sources.npy import Npy
from shared.data.sources.table import open_table
from shared.data.write.request import BadFile, BadFiles, ItemSource, SourceRequest

SOURCES: Mapping[str, Callable[[SourceRequest], ItemSource]] = MappingProxyType(
    {
        "digits": open_digits,
        "image_folder": ImageFolder.open,
        "npy": Npy.open,
        **{name: partial(open_table, form=form) for name, form in TABLE_FORMATS.items()},
    }
)
"""Name, as the input `dataset` of prepare_data has it, to what opens the source."""

__all__ = ["SOURCES", "BadFile", "BadFiles", "ItemSource", "SourceRequest"]
