"""Rows as documents, of any format in `formats/`: a column of texts, and perhaps one of classes.

A row goes into a split by its text, so that a text that occurs twice is never in two splits, whatever the order of the
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.data.formats.file_format import (
    FileFormat,
    FilePart,
    FileRow,
    WrongFileError,
    find_file_fault,
    find_name_fault,
    is_utf8,
)
from shared.data.text.documents import Document, size_fault
from shared.data.write.request import BadFiles, SourceRequest, list_names
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RowDocuments:
    """The rows of some files below a root; the parts of the files are the units."""

    request: SourceRequest
    root: Path
    form: FileFormat
    parts: list[FilePart]

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each unit."""
        return [part.size for part in self.parts]

    def read(self, unit: int, bad: BadFiles) -> Iterator[Document]:
        """Documents of a unit."""
        part, path = self.parts[unit], str(self.parts[unit].path.relative_to(self.root))
        try:
            for row in self.form.rows(part, list(_columns(self.request).values()), self.request.most_bytes):
                document = self._document(row)
                if isinstance(document, Document):
                    yield document
                else:
                    bad.report(f"{path}:{self.form.place(part, row.at)}", document)
        except WrongFileError as error:
            bad.report(path, f"{error}; what follows is left out")

    def _document(self, row: FileRow) -> Document | str:
        """The document of a row, or what is wrong with the row."""
        if row.fault:
            return row.fault
        text, request = row.cells[0], self.request
        if not isinstance(text, str) or not text:
            return f"has no text in column {request.text_column!r}, but {text!r:.40}"
        label = _class_name(row.cells[1]) if request.labelled else ""
        if label is None:
            return f"has no class in column {request.label_column!r}, but {row.cells[1]!r:.40}"
        if not is_utf8(text):
            return f"is not text in UTF-8 in column {request.text_column!r}"
        data = text.encode()
        fault = size_fault(len(data), request.most_bytes)
        return fault or Document(text, request.splitter.split_of(data), label)


def open_rows(request: SourceRequest, form: FileFormat) -> RowDocuments:
    """Find the files of a format, and cut them into units.

    Raises:
        Refusal: if there are none that can be used, or if the first lacks a column.
    """
    root, paths = request.find_files(form.suffixes)
    parts: list[FilePart] = []
    for path in paths:
        try:
            if fault := find_file_fault(path) or find_name_fault(path):
                raise WrongFileError(fault)  # noqa: TRY301  # one of several places
            if not parts:
                _check_columns(path, request, form)
            parts += form.parts(path)
        except WrongFileError as error:
            request.bad.report(str(path.relative_to(root)), str(error))
    if not parts:
        found = request.bad.found[0]
        raise Refusal(f"{root}: none of its {len(paths)} files can be used; {found.path} {found.reason}.")
    return RowDocuments(request, root, form, parts)


def _columns(request: SourceRequest) -> dict[str, str]:
    """The inputs that name columns, the text's first, and what they name."""
    label = {"label_column": request.label_column} if request.labelled else {}
    return {"text_column": request.text_column, **label}


def _check_columns(path: Path, request: SourceRequest, form: FileFormat) -> None:
    """Refuse a file that lacks a column, naming what is there, or has one of a type that is no text and no class."""
    there, columns = form.header(path), _columns(request)
    if lacking := {key: name for key, name in columns.items() if name not in there}:
        close = [match for name in lacking.values() for match in get_close_matches(name, there, 1)]
        hint = f"Did you mean {list_names(close)}?" if close else f"Set {' and '.join(lacking)} to one of these."
        wanted = list_names([f"{name!r} ({key})" for key, name in lacking.items()])
        raise Refusal(f"{path} has no column {wanted}; it has {list_names(there)}. {hint}")
    types = form.types(path)
    wrong = [
        f"{name} is {types[name]}"
        for key, name in columns.items()
        if name in types and not _fits(types[name], label=key == "label_column")
    ]
    if wrong:
        raise Refusal(f"{path}: {' and '.join(wrong)}: a text has to be a string, a class a string or an integer.")


def _fits(kind: pa.DataType, *, label: bool) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    return label and (types.is_integer(kind) or types.is_boolean(kind))


def _class_name(value: Any) -> str | None:
    """Name of a class; None where there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) or (isinstance(value, str) and value) else None
