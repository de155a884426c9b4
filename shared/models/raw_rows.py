"""From rows of the user's table, as pandas has them, to those that a model takes; and from its outputs to labels.

Nothing but NumPy is needed: this file travels in each saved model.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .card import ModelCard

ServedRows = Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]
_SHOWN = 60
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def serve_table(card: ModelCard, serve: ServedRows) -> Callable[[Any], Any]:
    """What MLflow calls: a DataFrame with the user's columns gives one of predictions; an array gives plain outputs.

    The predictions are the labels' texts with the probability of each, or the values of a regression.
    """

    def predict(given: Any) -> Any:
        if not hasattr(given, "columns"):
            return serve(given)
        outputs = serve(encode_rows(card, given))
        frame = type(given)
        if card.task == "regression":
            return frame({"prediction": outputs[:, 0].astype(np.float64)}, index=given.index)
        shifted = np.exp(outputs.astype(np.float64) - outputs.max(1, keepdims=True))
        best = outputs.argmax(1)
        labels = np.array(card.classes, object)[best]
        chance = shifted.max(1) / shifted.sum(1)
        return frame({"prediction": labels, "probability": chance}, index=given.index)

    return predict


def encode_rows(card: ModelCard, frame: Any) -> npt.NDArray[np.float32]:
    """Rows of a table as the model takes them: what train knew of categories and means decides.

    Raises:
        ValueError: if a column is lacking, if a cell is no number where one is needed, or empty where train had none.
    """
    columns, missing = card.table["columns"], frozenset(card.table["missing"])
    if lacking := [column["name"] for column in columns if column["name"] not in frame.columns]:
        raise ValueError(f"the rows have no column {', '.join(map(repr, lacking))}; they have {list(frame.columns)}.")
    features, marks = [], []
    for column in columns:
        cells = frame[column["name"]].to_numpy(dtype=object)
        if "values" in column:
            features.append(_codes(cells, column["values"], missing))
            continue
        numbers = np.array([_number(cell, missing, column["name"]) for cell in cells], np.float32)
        absent = np.isnan(numbers)
        if absent.any() and "fill" not in column:
            raise ValueError(
                f"column {column['name']!r} is empty in row {int(absent.argmax())}: the model was trained on rows "
                "without missing values. Fill it in, or prepare the data with on_missing impute and train again."
            )
        features.append(np.where(absent, np.float32(column.get("fill", 0)), numbers))
        if column.get("marked"):
            marks.append(absent)
    return np.stack([*features, *marks], axis=1).astype(np.float32)


def _codes(cells: npt.NDArray[Any], values: list[str], missing: frozenset[str]) -> npt.NDArray[np.float32]:
    exact = {text: code for code, text in enumerate(values, 1)}
    alike: dict[str, int] = {}
    for text, code in exact.items():
        alike.setdefault(plain_text(text), code)
    known: dict[Any, int] = {}
    for cell in cells:
        key = _cell_key(cell)
        if key not in known:
            text = "" if _is_missing(cell, missing) else str(cell)
            known[key] = exact.get(text) or alike.get(plain_text(text), 0)
    return np.array([known[_cell_key(cell)] for cell in cells], np.float32)


def _cell_key(cell: Any) -> tuple[str, str]:
    """The same for the same cell: True and 1 are equal to a dictionary."""
    return type(cell).__name__, str(cell)


def plain_text(text: str) -> str:
    """Return the same text for spellings of one value: 1, 1.0 and 01; true and True; a text with spaces around it.

    Letters with accents count as one character, however they are composed. Preparing refuses a column with two of them.
    """
    text = unicodedata.normalize("NFC", text).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return repr(int(number) if number.is_integer() else number) if math.isfinite(number) else text


def _is_missing(cell: Any, missing: frozenset[str]) -> bool:
    # pandas' NA is neither equal to itself nor not.
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or cell != cell or str(cell).strip() in missing  # noqa: PLR0124


def _number(cell: Any, missing: frozenset[str], name: str) -> float:
    if _is_missing(cell, missing):
        return math.nan
    try:
        number = float(cell)
    except (TypeError, ValueError):
        raise ValueError(f"column {name!r} holds {str(cell)[:_SHOWN]!r}; it has to be a number.") from None
    return math.nan if number in _absent_numbers(missing) else number


@lru_cache(maxsize=8)  # asked for each cell
def _absent_numbers(missing: frozenset[str]) -> frozenset[float]:
    found = set()
    for text in missing:
        try:
            found.add(float(text))
        except ValueError:
            continue
    return frozenset(number for number in found if math.isfinite(number))


def table_columns(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a model of a table takes, as MLflow's signature has it.

    Any type: MLflow would refuse whole numbers for a column of numbers, and flags without gaps for one of texts.
    """
    return [{"type": "any", "name": column["name"], "required": False} for column in table["columns"]]


def predicted_columns(task: str) -> list[dict[str, Any]]:
    """What it gives, as MLflow's signature has it."""
    numbers = {"type": "double", "required": True}
    if task == "regression":
        return [numbers | {"name": "prediction"}]
    return [{"type": "string", "name": "prediction", "required": True}, numbers | {"name": "probability"}]
