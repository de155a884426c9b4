"""Tables of numbers with a column to predict: read once, block by block, into spools; then any row by number.

What one format knows is in `csv_files.py` and `parquet_files.py`; what holds for both is here. Memory holds a block of
rows, however many there are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import Rows
from shared.data.sources.file_fault import find_file_fault, find_name_fault
from shared.data.sources.source import BadFiles, Request, names
from shared.data.write.splits import Labels, count
from shared.data.write.spool import Spool
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CLASSES = 10_000  # fewer than 16 bits can number
NOTE_SECONDS = 10.0
PANDAS_INDEX = "__index_level_"
"""How pandas calls an index without a name in a Parquet file: row numbers, which predict nothing."""


class WrongFileError(ValueError):
    """What is wrong with a file, as a sentence goes on after its path."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are read: the features in order, and the target."""

    features: tuple[str, ...]
    target: str


class Format(Protocol):
    """One kind of file that holds a table."""

    suffixes: tuple[str, ...]

    def header(self, path: Path) -> list[str]:
        """Names of the columns.

        Raises:
            WrongFileError: if the file is of another kind, or damaged.
        """

    def check(self, path: Path, columns: Columns) -> None:
        """Refuse columns of types that cannot be used, all at once, where the file says types.

        Raises:
            Refusal: naming the columns.
        """

    def blocks(self, path: Path, columns: Columns, task: str) -> Iterator[tuple[npt.NDArray[np.float32], pa.Array]]:
        """Features (rows, features), not a number where one is missing, and the target, null where it is missing.

        Raises:
            WrongFileError: if the file is damaged, or if a cell is not what its column holds.
        """

    def close(self) -> None:
        """Give back the memory that reading took."""

    def place(self, path: Path, columns: Columns, row: int, column: str, *, regression: bool) -> str:
        """Where a row (from 0) with a missing or impossible value lies, for messages: ``path:line``, or better."""


@dataclass(frozen=True)
class ClassLabels:
    """Labels, read from codes that number the classes in the order in which they first came.

    Attributes:
        codes: the code of each row, on disk.
        numbers: the label of each code.
    """

    codes: Spool
    numbers: npt.NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        return self.numbers[self.codes[key]]


@dataclass(frozen=True)
class Table:
    """Rows of numbers, float32, with a class or a target value each.

    Attributes:
        files: path of each file, and the number of its first row.
    """

    spool: Spool
    files: tuple[tuple[str, int], ...]
    labels: Labels
    classes: tuple[str, ...]
    array: Array
    columns: tuple[str, ...]
    task: str
    decodes: bool = False

    def where(self, item: int) -> str:
        """File of a row."""
        return next(path for path, first in reversed(self.files) if first <= item)

    def read(self, items: Rows, bad: BadFiles) -> npt.NDArray[Any]:
        """Rows by number."""
        del bad  # the files were checked when they were read
        return self.spool.take(items)


def open_table(request: Request, form: Format) -> Table:
    """Read all files of a folder, in the order of their names, or one file.

    Raises:
        Refusal: if there is none, if a column is missing or of no use, or if a value is missing or impossible.
    """
    request.refuse_image_size()
    files = _files(request, form)
    scan = _Scan(request, form)
    for path in files:
        scan.add(path)
    return scan.table(files)


def _files(request: Request, form: Format) -> list[Path]:
    if request.folder is not None and request.folder.is_file():
        request.bad.folder = request.folder.parent
        return [request.folder]
    folder = request.needed_folder()
    every = [path for path in sorted(folder.rglob("*")) if not path.is_dir()]
    shown = [path for path in every if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    found = [path for path in shown if path.name.lower().endswith(form.suffixes)]
    if not found:
        there = sorted({path.suffix or path.name for path in shown})
        raise Refusal(
            f"{folder} holds no file that ends in {' or '.join(form.suffixes)}, but {names(there)}. Choose the "
            "dataset that your files are, or convert them."
        )
    return found


class _Scan:
    """Reads files one after another into a spool."""

    def __init__(self, request: Request, form: Format) -> None:
        self._request, self._form = request, form
        self._regression = request.task == "regression"
        self._columns: Columns | None = None
        self._spool = Spool((0,), "float32")
        self._files: list[tuple[str, int]] = []
        self._targets = Spool((), "float64" if self._regression else "int16")
        self._codes: dict[str, int] = {}
        self._missing = 0
        self._noted = time.monotonic()

    def add(self, path: Path) -> None:
        """Read a file; if it cannot be used, what it gave so far is forgotten and it is reported."""
        rows = self._spool.rows
        try:
            self._choose(path)
            assert self._columns is not None  # noqa: S101  # chosen in the line above
            before = 0
            for x, target in self._form.blocks(path, self._columns, self._request.task):
                self._add(path, before, x, target)
                before += len(x)
                self._note(path)
        except WrongFileError as error:
            self._spool.cut(rows)
            self._targets.cut(rows)
            self._request.bad.report(str(path.relative_to(self._request.bad.folder)), str(error))
        else:
            self._files.append((str(path), rows))

    def table(self, files: Sequence[Path]) -> Table:
        """Everything that was read.

        Raises:
            Refusal: if that is nothing.
        """
        if not self._spool.rows:
            found = self._request.bad.found
            why = f"{found[0].path} {found[0].reason}" if found else "there is no row with all its values"
            raise Refusal(f"{self._request.folder}: none of its {len(files)} files gives a row; {why}.")
        if self._missing:
            self._request.note(f"{self._missing:,} rows lack a value and are left out")
        classes: tuple[str, ...] = ()
        labels: Labels = self._targets
        if not self._regression:
            classes, labels = _sorted_classes(self._codes, self._targets)
        self._form.close()
        assert self._columns is not None  # noqa: S101  # there are rows
        array = Array(self._spool.shape, "float32")
        return Table(
            self._spool, tuple(self._files), labels, classes, array, self._columns.features, self._request.task
        )

    def _choose(self, path: Path) -> None:
        """Let the first file decide on the columns, and see that the others have them too."""
        if fault := find_file_fault(path) or find_name_fault(path):
            raise WrongFileError(fault)
        header = self._form.header(path)
        there = set(header)
        if self._columns is None:
            columns = choose_columns(header, self._request, path)
            self._form.check(path, columns)
            self._columns, self._spool = columns, Spool((len(columns.features),), "float32")
            return
        lacking = [name for name in (*self._columns.features, self._columns.target) if name not in there]
        if lacking:
            raise WrongFileError(f"lacks columns that the files before it have: {names(lacking)}")
        self._form.check(path, self._columns)

    def _add(self, path: Path, before: int, x: npt.NDArray[np.float32], target: pa.Array) -> None:
        missing = np.isnan(x).any(1) | target.is_null().to_numpy(zero_copy_only=False)
        if missing.any():
            if not self._request.skip_missing:
                self._refuse_missing(path, before, x, int(missing.argmax()))
            self._missing += int(missing.sum())
            x, target = x[~missing], target.filter(~missing)
        y = target.to_numpy(zero_copy_only=False) if self._regression else self._encode(target)
        finite = np.isfinite(x).all(1) & np.isfinite(y)
        if not finite.all():
            kept = np.flatnonzero(~missing)
            row = int(finite.argmin())
            column = self._column(int(np.isfinite(x[row]).argmin()) if not np.isfinite(x[row]).all() else -1)
            place = self._place(path, before + int(kept[row]), column)
            raise WrongFileError(f"cannot be used: {place}: column {column} is not a finite number of 32 bits")
        self._spool.append(x)
        self._targets.append(y)

    def _refuse_missing(self, path: Path, before: int, x: npt.NDArray[np.float32], row: int) -> None:
        absent = np.isnan(x[row])
        column = self._column(int(absent.argmax()) if absent.any() else -1)
        raise Refusal(
            f"{self._place(path, before + row, column)}: column {column} is empty. Fill it in, or leave out rows that "
            "lack a value with on_missing skip."
        )

    def _column(self, number: int) -> str:
        assert self._columns is not None  # noqa: S101  # rows were read
        return repr(self._columns.target if number < 0 else self._columns.features[number])

    def _place(self, path: Path, row: int, column: str) -> str:
        assert self._columns is not None  # noqa: S101  # rows were read
        return self._form.place(path, self._columns, row, column, regression=self._regression)

    def _encode(self, target: pa.Array) -> npt.NDArray[np.int16]:
        """Numbers of the classes, in the order in which they first came."""
        found = target.dictionary_encode()
        codes = [self._codes.setdefault(class_name(v), len(self._codes)) for v in found.dictionary.to_pylist()]
        if len(codes) > MOST_CLASSES or len(self._codes) > MOST_CLASSES:
            raise Refusal(
                f"column {self._request.target!r} has more than {MOST_CLASSES:,} different values, too many for "
                f"classes: {names(list(self._codes), 3)}. For numbers choose task regression."
            )
        numbers = found.indices.to_numpy(zero_copy_only=False)
        return np.array(codes, np.int16)[numbers] if codes else np.empty(0, np.int16)

    def _note(self, path: Path) -> None:
        if time.monotonic() - self._noted >= NOTE_SECONDS:
            self._noted = time.monotonic()
            self._request.note(f"read {self._spool.rows:,} rows, now in {path.name}")


def choose_columns(header: Sequence[str], request: Request, path: Path) -> Columns:
    """Which columns are features: all but the target and those to be left out.

    Raises:
        Refusal: if one that is named is not there (the nearest names are offered), if a name is empty or comes twice,
            or if no feature is left.
    """
    twice = sorted(name for name, times in Counter(header).items() if times > 1 and name)
    if twice:
        raise Refusal(f"{path} has more than one column called {names(twice)}. Rename them.")
    for name, what in ((request.target, "target"), *((name, "ignore_columns") for name in request.ignore_columns)):
        if name not in header:
            raise Refusal(_absent(name, what, header, path))
    left_out = {request.target, *request.ignore_columns}
    features = tuple(name for name in header if name not in left_out and not name.startswith(PANDAS_INDEX))
    if "" in features:
        raise Refusal(
            f"{path}: column {list(header).index('') + 1} has no name, as when pandas writes its index. Write the file "
            "with index=False, or name the column."
        )
    if not features:
        raise Refusal(f"{path} has no column besides {names(sorted(left_out))}: there is nothing to predict from.")
    return Columns(features, request.target)


def release_memory() -> None:
    """Let Arrow give back to the system what it holds for the next block."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def _absent(name: str, what: str, header: Sequence[str], path: Path) -> str:
    lower = {column.lower(): column for column in header}
    near = [lower[found] for found in get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Give {what} the name of a column."
    if all(_is_number(column) for column in header):
        hint = "Its first line holds numbers: put a line with the columns' names before it."
    return f"{path} has no column {name!r} ({what}); it has {names(list(header), 20)}. {hint}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def class_name(value: object) -> str:
    """Name of a class: a whole number without a fraction, whatever its type, else the text of the value."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _sorted_classes(codes: dict[str, int], targets: Spool) -> tuple[tuple[str, ...], ClassLabels]:
    """Classes in ascending order, as numbers if all are whole numbers, else as text; the labels follow."""
    seen = count(targets, len(codes))
    used = [name for name, code in codes.items() if seen[code]]  # a file left out may have brought more
    classes = tuple(sorted(used, key=int) if all(name.lstrip("-").isdecimal() for name in used) else sorted(used))
    numbers = np.zeros(len(codes), np.min_scalar_type(max(1, len(classes))))
    numbers[[codes[name] for name in classes]] = np.arange(len(classes))
    return classes, ClassLabels(targets, numbers)
