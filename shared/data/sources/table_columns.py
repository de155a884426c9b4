"""Which columns of a table are read, and whether they hold what can be learnt from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from shared.data.formats.file_format import TableFormat, is_number
from shared.data.write.request import SourceRequest, join_names, list_names
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

_PANDAS_INDEX = "__index_level_"
"""How pandas calls an index without a name in a Parquet file: row numbers, which predict nothing."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which columns of a table are read: the features in order, of which some are categories, and the target."""

    features: tuple[str, ...]
    target: str
    categories: frozenset[str] = frozenset()


def choose_columns(header: Sequence[str], request: SourceRequest, path: Path) -> TableColumns:
    """Which columns are features: all but the target and those to be left out.

    Raises:
        Refusal: if one that is named is not there (the nearest names are offered), if a name is empty or comes twice,
            or if no feature is left.
    """
    twice = sorted(name for name, times in Counter(header).items() if times > 1 and name)
    if twice:
        raise Refusal(f"{path} has more than one column called {list_names(twice)}. Rename them.")
    named = {"ignore_columns": request.ignore_columns, "categorical_columns": request.categorical_columns}
    for name, what in ((request.target, "target"), *((name, what) for what, names in named.items() for name in names)):
        if name not in header:
            raise Refusal(_absent(name, what, header, path))
    left_out = {request.target, *request.ignore_columns}
    if wrong := sorted(left_out & set(request.categorical_columns)):
        raise Refusal(
            f"categorical_columns names {list_names(wrong)}, which is the target or in ignore_columns: it is for "
            "features."
        )
    features = tuple(name for name in header if name not in left_out and not name.startswith(_PANDAS_INDEX))
    if "" in features:
        raise Refusal(
            f"{path}: column {list(header).index('') + 1} has no name, as when pandas writes its index. Write the file "
            "with index=False, or name the column."
        )
    if not features:
        raise Refusal(f"{path} has no column besides {list_names(sorted(left_out))}: there is nothing to predict from.")
    return TableColumns(features, request.target, frozenset(request.categorical_columns))


def find_categories(form: TableFormat, path: Path, names: Sequence[str], missing: frozenset[str]) -> frozenset[str]:
    """Which columns of the first file are categories by themselves: those of texts.

    Where the file says no types, a column holds texts if no cell of its first filled block is a number, and numbers if
    one is: a text among numbers is then an error, with its line, and not a category that nobody wanted.

    Raises:
        WrongFileError: if the file is damaged.
    """
    import pyarrow as pa

    if types := form.types(path):
        return frozenset(name for name in names if _holds_texts(types[name]))
    undecided, found = list(names), set()
    for block in form.blocks(path, dict.fromkeys(names, pa.string())):
        for name in list(undecided):
            filled = [text for text in block.column(name).unique().to_pylist() if text.strip() not in missing]
            if filled:
                undecided.remove(name)
                found |= set() if any(map(is_number, filled)) else {name}
        if not undecided:
            break
    return frozenset(found)


def check_types(path: Path, types: Mapping[str, pa.DataType], columns: TableColumns, task: str) -> None:
    """Refuse columns of types that cannot be used, all at once, where the file says types.

    Raises:
        Refusal: for features that are not numbers, and for a target that is nested or a date.
    """
    there = {name: types[name] for name in columns.features if name in types and not _holds_numbers(types[name])}
    wrong = {name: kind for name, kind in there.items() if not (name in columns.categories and _holds_texts(kind))}
    if wrong:
        shown = ", ".join(f"{name} ({kind})" for name, kind in wrong.items())
        raise Refusal(
            f"{path}: these columns do not hold plain numbers: {shown}. Convert them, or leave them out with "
            f"ignore_columns {join_names(wrong)!r}."
        )
    kind = types.get(columns.target)
    if kind is not None and not _holds_numbers(kind) and (task == "regression" or not _holds_classes(kind)):
        wanted = "numbers" if task == "regression" else "numbers or texts"
        raise Refusal(f"{path}: the target {columns.target} is {kind}, not {wanted}.")


def _holds_numbers(kind: pa.DataType) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _holds_texts(kind: pa.DataType) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _holds_classes(kind: pa.DataType) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return _holds_texts(kind) or types.is_integer(kind)


def _absent(name: str, what: str, header: Sequence[str], path: Path) -> str:
    lower = {column.lower(): column for column in header}
    near = [lower[found] for found in get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Give {what} the name of a column."
    if all(is_number(column) for column in header):
        hint = "Its first line holds numbers: put a line with the columns' names before it."
    return f"{path} has no column {name!r} ({what}); it has {list_names(list(header), 20)}. {hint}"
