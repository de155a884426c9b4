"""MLflow's search: its filters, orders and pages, turned into SQL.

A filter is comparisons joined by AND: ``metrics.loss < 1 AND tags."mlflow.runName" LIKE 'train%'``. A name stands bare,
in double quotes or in backticks (mlflow.org/docs/latest/search-runs, "Search Query Syntax Deep Dive").
"""

from __future__ import annotations

import base64
import binascii
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from allranks.local.tracking.store import INVALID, TrackingError, TrackingStore, list_of, text_of, whole_of

_MOST = 50000  # rows that MLflow gives at once
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"[^"]*"|`[^`]*`)|(?P<operator><=|>=|!=|<|>|=)"""
    r"""|(?P<sign>[(),])|(?P<word>[^\s<>=!(),'"`]+))"""
)
_ENTITIES = {
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), "attribute"),
    **dict.fromkeys(("metric", "metrics"), "metric"),
    **dict.fromkeys(("param", "params", "parameter", "parameters"), "param"),
    **dict.fromkeys(("tag", "tags"), "tag"),
}


@dataclass(frozen=True, slots=True)
class SearchColumns:
    """How the rows of a table are searched.

    Attributes:
        kind, owner: of its tags and params, and the expression that gives their owner.
        attributes: the columns by their names in filters.
        order: of rows that the request leaves equal.
        metrics: the expression that gives the value of a metric, the metric's name being ``?``; empty without metrics.
    """

    kind: str
    owner: str
    attributes: Mapping[str, str]
    order: str
    metrics: str = ""


def search_entities(
    store: TrackingStore,
    table: str,
    columns: SearchColumns,
    request: Mapping[str, Any],
    within: Mapping[str, Sequence[object]],
) -> tuple[list[sqlite3.Row], dict[str, str]]:
    """Find the rows that a request describes, and the token of the next page, if there is one.

    Args:
        store: what is searched.
        table: of the rows.
        columns: how they are searched.
        request: ``filter``, ``order_by``, ``max_results`` and ``page_token``.
        within: values that columns may have, besides the filter.

    Raises:
        TrackingError: the filter, the order or the token cannot be read.
    """
    conditions, values = _conditions(columns, text_of(request, "filter", ""))
    for column, allowed in within.items():
        conditions.append(f"{column} IN ({', '.join('?' * len(allowed))})")
        values += allowed
    order, order_values = _order(columns, [str(one) for one in list_of(request, "order_by")])
    limit = min(max(1, whole_of(request, "max_results", 1000)), _MOST)
    offset = _offset(text_of(request, "page_token", ""))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT * FROM {table}{where} ORDER BY {order} LIMIT ? OFFSET ?"
    rows = store.connection.execute(query, [*values, *order_values, limit + 1, offset]).fetchall()
    token = base64.b64encode(str(offset + limit).encode()).decode()
    return rows[:limit], {"next_page_token": token} if len(rows) > limit else {}


def _offset(token: str) -> int:
    try:
        return max(0, int(base64.b64decode(token, validate=True))) if token else 0
    except (ValueError, binascii.Error):
        raise TrackingError(INVALID, f"Invalid page token '{token[:100]}'.") from None


def _tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise TrackingError(INVALID, f"Invalid filter string: cannot read {text[place : place + 50]!r}.")
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        place = match.end()
    return found


class _Filter:
    """Reads one filter from its beginning to its end."""

    def __init__(self, columns: SearchColumns, text: str) -> None:
        self._columns = columns
        self._text = text
        self._tokens = _tokens(text)

    def comparisons(self) -> tuple[list[str], list[object]]:
        conditions: list[str] = []
        values: list[object] = []
        while self._tokens:
            condition, found = self._comparison()
            conditions.append(condition)
            values += found
            if self._tokens and self._word() != "AND":
                raise self._fault("comparisons are joined by AND")
        return conditions, values

    def _comparison(self) -> tuple[str, list[object]]:
        entity, key = _read_name(self._take)
        operator, wanted = self._operator(), []
        if operator.endswith("NULL"):
            mark = ""
        elif operator.endswith("IN"):
            wanted = self._list()
            mark = f"({', '.join('?' * len(wanted))})"
        else:
            wanted, mark = [self._value(entity)], "?"
        return self._condition(entity, key, operator, mark, wanted)

    def _condition(
        self, entity: str, key: str, operator: str, mark: str, wanted: list[object]
    ) -> tuple[str, list[object]]:
        columns = self._columns
        column = f"{{}} {operator} {mark}"
        if operator in {"LIKE", "ILIKE"}:
            column = "{} GLOB ?" if operator == "LIKE" else "lower({}) GLOB lower(?)"
            wanted = [_glob(str(wanted[0]))]
        if entity == "attribute":
            return column.format(_attribute(columns, key)), wanted
        expression, owner = _value_of(columns, entity, key)
        return column.format(expression), [*owner, *wanted]

    def _operator(self) -> str:
        kind, text = self._take()
        if kind == "operator":
            return text
        word = text.upper()
        if word in {"NOT", "IS"}:
            word += f" {self._word()}"
            word += f" {self._word()}" if word == "IS NOT" else ""
        if kind == "word" and word in {"LIKE", "ILIKE", "IN", "NOT IN", "IS NULL", "IS NOT NULL"}:
            return word
        raise self._fault(f"{text!r} is no comparison")

    def _value(self, entity: str) -> object:
        kind, text = self._take()
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "quoted" and text[0] == '"':
            return text[1:-1]
        try:
            number = float(text)
        except ValueError:
            raise self._fault(f"{text!r} is neither a number nor a text in quotes") from None
        if entity in {"param", "tag"}:
            raise self._fault(f"the value of a {entity} is a text in quotes")
        return int(number) if number.is_integer() else number

    def _list(self) -> list[object]:
        values: list[object] = []
        if self._take() != ("sign", "("):
            raise self._fault("IN needs a list in brackets")
        while True:
            values.append(self._value("attribute"))
            sign = self._take()
            if sign == ("sign", ")"):
                return values
            if sign != ("sign", ","):
                raise self._fault("the values of a list are parted by commas")

    def _word(self) -> str:
        return self._take()[1].upper()

    def _take(self) -> tuple[str, str]:
        if not self._tokens:
            raise self._fault("it ends too early")
        return self._tokens.pop(0)

    def _fault(self, why: str) -> TrackingError:
        return TrackingError(INVALID, f"Invalid filter string {self._text[:200]!r}: {why}.")


def _conditions(columns: SearchColumns, text: str) -> tuple[list[str], list[object]]:
    return _Filter(columns, text).comparisons()


def _read_name(take: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """Read ``metrics.loss``, ``tags."a b"`` or the bare name of an attribute from tokens: its entity and key."""
    kind, text = take()
    if kind == "quoted":
        return "attribute", text[1:-1]
    prefix, dot, key = text.partition(".")
    entity = _ENTITIES.get(prefix.lower()) if dot else "attribute"
    if kind != "word" or entity is None:
        raise TrackingError(INVALID, f"Invalid name {text!r}: one of metrics.x, params.x, tags.x, attributes.x.")
    if not dot:
        return entity, text
    return entity, key or take()[1].strip('"`')


def _glob(pattern: str) -> str:
    """An SQL pattern for GLOB, which minds upper and lower case as MLflow's LIKE does."""
    escaped = re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", pattern)
    return escaped.replace("%", "*").replace("_", "?")


def _attribute(columns: SearchColumns, key: str) -> str:
    column = columns.attributes.get(key)
    if column is None:
        known = ", ".join(columns.attributes)
        raise TrackingError(INVALID, f"Invalid attribute key '{key}' specified. Valid keys are: {known}.")
    return column


def _value_of(columns: SearchColumns, entity: str, key: str) -> tuple[str, list[object]]:
    """The expression that gives one metric, param or tag of a row, and its values."""
    if entity == "metric":
        if not columns.metrics:
            raise TrackingError(INVALID, f"Invalid entity type 'metric': a {columns.kind} has none.")
        return columns.metrics, [key]
    table = f"{entity}s"
    query = (
        f"(SELECT value FROM {table} AS pairs WHERE pairs.kind = ? AND pairs.owner = {columns.owner} AND pairs.key = ?)"
    )
    return query, [columns.kind, key]


def _order(columns: SearchColumns, clauses: Sequence[str]) -> tuple[str, list[object]]:
    """The ORDER BY of clauses such as ``metrics.loss DESC``; who lacks the value comes last."""
    parts, values = [], []
    for clause in clauses:
        tokens = _tokens(clause)
        direction = "ASC"
        if len(tokens) > 1 and tokens[-1][1].upper() in {"ASC", "DESC"}:
            direction = tokens.pop()[1].upper()
        entity, key = _read_name(partial(next, iter(tokens), ("", "")))
        expression, owner = (_attribute(columns, key), []) if entity == "attribute" else _value_of(columns, entity, key)
        parts.append(f"{expression} IS NULL, {expression} {direction}")
        values += [*owner, *owner]
    return ", ".join([*parts, columns.order]), values
