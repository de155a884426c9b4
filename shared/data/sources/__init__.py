"""Where rows come from: one file for each kind of source, all with the interface of ``source.Source``.

A further source is a file with a class, and a line in ``SOURCES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shared.data.sources.digits import Digits
from shared.data.sources.image_folder import ImageFolder
from shared.data.sources.npy import Npy
from shared.data.sources.source import Request, Source

SOURCES: Mapping[str, Callable[[Request], Source]] = MappingProxyType(
    {"digits": Digits.open, "image_folder": ImageFolder.open, "npy": Npy.open}
)
"""Name, as the input `dataset` of prepare_data has it, to what opens the source."""

__all__ = ["SOURCES", "Request", "Source"]
