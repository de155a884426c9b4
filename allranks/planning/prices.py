"""What a node costs for an hour: of the user's own table. We have none: prices differ by region, contract and month.

A table is YAML, of any currency::

    currency: EUR
    source: our contract, page 4
    date: 2026-11-01
    sizes:
      Standard_NC24ads_A100_v4: 3.40
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.catalogue import load_yaml
from allranks.errors import UsageError

_FORM = "A table has currency, source, date, and under sizes the price of a node for an hour: docs/plan.md."


@dataclass(frozen=True, slots=True)
class NodePrice:
    """Of a node for an hour; where it is said, and of when, are empty for one that was given on the command line."""

    amount: float
    currency: str = ""
    source: str = ""
    date: str = ""


def price_from_table(file: Path, size: str) -> NodePrice:
    """The price of a size in a table; raises UsageError for a table that is none, and for a size that it has not."""
    try:
        document = load_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no table of prices {str(file)!r}.", _FORM) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the table of prices {str(file)!r} cannot be read: {error}.", _FORM) from None
    sizes = document.get("sizes") if isinstance(document, dict) else None
    texts = {key: document.get(key) for key in ("currency", "source", "date")} if isinstance(document, dict) else {}
    if not isinstance(sizes, dict) or not all(texts.values()):
        missing = ", ".join([*(key for key, value in texts.items() if not value), *([] if sizes else ["sizes"])])
        raise UsageError(f"the table of prices {str(file)!r} lacks {missing or 'everything'}.", _FORM)
    prices = {str(name).lower(): value for name, value in sizes.items()}
    if size.lower() not in prices:
        raise UsageError(f"the table of prices {str(file)!r} has no {size}.", f"It has {', '.join(map(str, sizes))}.")
    return NodePrice(_amount(prices[size.lower()], size), *map(str, texts.values()))


def _amount(value: Any, size: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise UsageError(f"{value!r} is no price of {size}: a number from 0.", _FORM)
    return float(value)
