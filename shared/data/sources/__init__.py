"""Where rows come from: one file for each kind of source, all with the interface of ``source.Source``.

A further source is a file with a function that opens it, and a line in ``SOURCES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shared.data.sources.cifar import open_cifar
from shared.data.sources.csv_files import open_csv
from shared.data.sources.digits import Digits
from shared.data.sources.idx import open_idx
from shared.data.sources.image_folder import ImageFolder
from shared.data.sources.npy import Npy
from shared.data.sources.parquet_files import open_parquet
from shared.data.sources.source import BadFile, BadFiles, Request, Source

SOURCES: Mapping[str, Callable[[Request], Source]] = MappingProxyType(
    {
        "digits": Digits.open,
        "image_folder": ImageFolder.open,
        "cifar": open_cifar,
        "idx": open_idx,
        "npy": Npy.open,
        "csv": open_csv,
        "parquet": open_parquet,
    }
)
"""Name, as the input `dataset` of prepare_data has it, to what opens the source."""

__all__ = ["SOURCES", "BadFile", "BadFiles", "Request", "Source"]
