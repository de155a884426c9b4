"""Registers the library in a workspace or a registry: environments, then components, then pipeline components.

``plan`` asks the service what is there and says what would be done; ``send`` does it. Versions are immutable: what is
there and the same is not sent, and one changed asset stops everything before anything is sent. What was published
before a failure stays, and the next plan leaves it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

from allranks.azure.client import Place
from allranks.azure.register_assets import Asset
from allranks.azure.register_compare import difference, published
from allranks.azure.register_copies import copy_of
from allranks.azure.register_retry import patiently
from allranks.azure.sdk import REGISTRY_LOGGER
from allranks.azure.uploads import without_runs
from allranks.errors import UsageError

READERS = 8
"""Assets that are asked for at once."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """What is to be done with one asset.

    Attributes:
        why: for ``refused`` what has changed; else a note, or empty.
    """

    asset: Asset
    action: Literal["publish", "unchanged", "refused"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a registration would do, in the order in which it does it."""

    place: Place
    rows: tuple[Row, ...]

    def of(self, action: str) -> tuple[Row, ...]:
        """The rows with one action."""
        return tuple(row for row in self.rows if row.action == action)


def plan(client: Any, place: Place, assets: Sequence[Asset], told: Told) -> Plan:
    """Ask the service what is there, and send nothing.

    Args:
        client: an MLClient of the place.
        place: the workspace or registry.
        assets: in the order in which they are to be published.
        told: hears when the service is busy.

    Raises:
        Exception: of the Azure SDK.
    """

    def row(asset: Asset) -> Row:
        return patiently(lambda: _row(client, place, asset), told)

    with ThreadPoolExecutor(READERS) as readers:
        return Plan(place, tuple(readers.map(row, assets)))


def require(plan: Plan) -> None:
    """Refuse a plan with changed assets, all of them at once.

    Raises:
        UsageError: some are published under this version with another content.
    """
    refused = plan.of("refused")
    if refused:
        listed = "\n".join(f"  {row.asset.kind} {row.asset.name} {row.asset.version}: {row.why}" for row in refused)
        raise UsageError(
            f"published versions never change, and these differ from what is in the {plan.place}:\n{listed}",
            "Nothing was sent. Raise the version of this checkout, which all assets carry, and register again:"
            " allranks version --raise patch",
        )


def send(client: Any, plan: Plan, done: Callable[[Row], None], told: Told) -> None:
    """Publish what the plan says, one after the other.

    Args:
        client: an MLClient of the plan's place.
        plan: without refused rows.
        done: hears of each asset that has been published.
        told: hears when the service is busy.

    Raises:
        UsageError: somebody published another content in the meantime.
        Exception: of the Azure SDK. What was published until then stays.
    """
    for row in plan.of("publish"):
        patiently(lambda asset=row.asset: _send(client, plan.place, asset), told)  # type: ignore[misc]
        done(row)


def _row(client: Any, place: Place, asset: Asset) -> Row:
    body = published(client, asset)
    if body is None:
        return Row(asset, "publish")
    differs = difference(client, asset, place, body)
    return Row(asset, "refused", differs) if differs else Row(asset, "unchanged")


def _send(client: Any, place: Place, asset: Asset) -> None:
    from azure.core.exceptions import HttpResponseError

    operations = client.environments if asset.kind == "environment" else client.components
    try:
        with _silent(), without_runs():
            operations.create_or_update(copy_of(asset, place))
    except HttpResponseError as error:
        if error.status_code != 409 or not _is_there(client, place, asset):
            raise


def _is_there(client: Any, place: Place, asset: Asset) -> bool:
    """Whether a conflict is none: somebody else has published the same since the plan was made.

    Raises:
        UsageError: somebody has published something else.
    """
    row = _row(client, place, asset)
    require(Plan(place, (row,)))
    return row.action == "unchanged"


@contextmanager
def _silent() -> Iterator[None]:
    """Keep the SDK's progress bars and its notes about each component of a registry from our own output."""
    notes = logging.getLogger(REGISTRY_LOGGER)
    before, notes.disabled = notes.disabled, True
    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            yield
    finally:
        notes.disabled = before
