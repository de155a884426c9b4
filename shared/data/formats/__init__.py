"""How files are read: one file here for each format, with one reader for tables of numbers and for texts alike.

A further format is a file with a subclass of ``FileFormat`` (or ``TableFormat``, where columns of numbers can be read
at once) and a line in ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shared.data.formats.csv_files import CsvFiles
from shared.data.formats.file_format import FileFormat, TableFormat
from shared.data.formats.json_lines import JsonLines
from shared.data.formats.parquet_files import ParquetFiles

FORMATS: Mapping[str, FileFormat] = MappingProxyType(
    {"jsonl": JsonLines(), "csv": CsvFiles(), "parquet": ParquetFiles()}
)
"""Name, as the input `dataset` of prepare_text has it, to the format: all of them hold rows of texts."""

TABLE_FORMATS: Mapping[str, TableFormat] = MappingProxyType(
    {name: form for name, form in FORMATS.items() if isinstance(form, TableFormat)}
)
"""Those of them that prepare_data reads tables of numbers from."""
