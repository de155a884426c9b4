"""Which columns of a table are read, and whether they hold what can be learnt from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from shared.data.write.request import SourceRequest, list_names
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

_PANDAS_INDEX = "__index_level_"
"""How pandas calls an index without a name in a Parquet file: row numbers, which predict nothing."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Which columns of a table are read: the features in order, and the target."""

    features: tuple[str, ...]
    target: str


def choose_columns(header: Sequence[str], request: SourceRequest, path: Path) -> TableColumns:
    """Which columns are features: all but the target and those to be left out.

    Raises:
        Refusal: if one that is named is not there (the nearest names are offered), if a name is empty or comes twice,
            or if no feature is left.
    """
    twice = sorted(name for name, times in Counter(header).items() if times > 1 and name)
    if twice:
        raise Refusal(f"{path} has more than one column called {list_names(twice)}. Rename them.")
    for name, what in ((request.target, "target"), *((name, "ignore_columns") for name in request.ignore_columns)):
        if name not in header:
            raise Refusal(_absent(name, what, header, path))
    left_out = {request.target, *request.ignore_columns}
    features = tuple(name for name in header if name not in left_out and not name.startswith(_PANDAS_INDEX))
    if "" in features:
        raise Refusal(
            f"{path}: column {list(header).index('') + 1} has no name, as when pandas writes its index. Write the file "
            "with index=False, or name the column."
        )
    if not features:
        raise Refusal(f"{path} has no column besides {list_names(sorted(left_out))}: there is nothing to predict from.")
    return TableColumns(features, request.target)


def check_types(path: Path, types: Mapping[str, pa.DataType], columns: TableColumns, task: str) -> None:
    """Refuse columns of types that cannot be used, all at once, where the file says types.

    Raises:
        Refusal: for features that are not numbers, and for a target that is nested or a date.
    """
    wrong = {name: types[name] for name in columns.features if name in types and not _holds_numbers(types[name])}
    if wrong:
        shown = ", ".join(f"{name} ({kind})" for name, kind in wrong.items())
        raise Refusal(
            f"{path}: these columns do not hold plain numbers: {shown}. Convert them, or leave them out with "
            f"ignore_columns {','.join(wrong)!r}."
        )
    kind = types.get(columns.target)
    if kind is not None and not _holds_numbers(kind) and (task == "regression" or not _holds_classes(kind)):
        wanted = "numbers" if task == "regression" else "numbers or texts"
        raise Refusal(f"{path}: the target {columns.target} is {kind}, not {wanted}.")


def _holds_numbers(kind: pa.DataType) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _holds_classes(kind: pa.DataType) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)


def _absent(name: str, what: str, header: Sequence[str], path: Path) -> str:
    lower = {column.lower(): column for column in header}
    near = [lower[found] for found in get_close_matches(name.lower(), lower, n=3, cutoff=0.6)]
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Give {what} the name of a column."
    if all(_is_number(column) for column in header):
        hint = "Its first line holds numbers: put a line with the columns' names before it."
    return f"{path} has no column {name!r} ({what}); it has {list_names(list(header), 20)}. {hint}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
