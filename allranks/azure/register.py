"""Registers the library in a workspace or a registry: environments, then components, then pipeline components.

``plan_registration`` asks the service what is there and says what would be done; ``publish_assets`` does it. Versions
are immutable: what is there and the same is not sent, and one changed asset stops everything before anything is sent.
What was published before a failure stays, and the next plan leaves it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

from allranks.azure.client import AssetPlace
from allranks.azure.library_asset import LibraryAsset
from allranks.azure.register_compare import asset_difference, published_body
from allranks.azure.register_copies import asset_copy
from allranks.azure.retry import call_with_retry
from allranks.azure.sdk import REGISTRY_LOGGER, runs_left_out
from allranks.errors import UsageError

_READERS = 8
"""Assets that are asked for at once."""

_RAISE = "the version of this checkout, which all assets carry, and register again: make bump PART=patch"
_Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PlannedAsset:
    """What is to be done with one asset; ``why`` is what has changed of one that is refused, else a note, or empty."""

    asset: LibraryAsset
    action: Literal["publish", "unchanged", "refused"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class RegistrationPlan:
    """What a registration would do, in the order in which it does it."""

    place: AssetPlace
    rows: tuple[PlannedAsset, ...]

    def with_action(self, action: str) -> tuple[PlannedAsset, ...]:
        """The rows with one action."""
        return tuple(row for row in self.rows if row.action == action)


def plan_registration(client: Any, place: AssetPlace, assets: Sequence[LibraryAsset], tell: _Tell) -> RegistrationPlan:
    """Ask the service what is there of the assets, which come in the order of publication, and send nothing."""

    def row(asset: LibraryAsset) -> PlannedAsset:
        return call_with_retry(lambda: _row(client, place, asset), tell)

    with ThreadPoolExecutor(_READERS) as readers:
        return RegistrationPlan(place, tuple(readers.map(row, assets)))


def require_unchanged(plan: RegistrationPlan) -> None:
    """Raise UsageError with all assets of a plan that are published under this version with another content."""
    refused = plan.with_action("refused")
    if refused:
        listed = "\n".join(f"  {row.asset.kind} {row.asset.name} {row.asset.version}: {row.why}" for row in refused)
        own = dict.fromkeys(row.asset.how_to_raise for row in refused if row.asset.own_version)
        whose = f"{', '.join(own)}, and register again." if own else _RAISE
        raise UsageError(
            f"published versions never change, and these differ from what is in the {plan.place}:\n{listed}",
            f"Nothing was sent. Raise {whose}",
        )


def publish_assets(client: Any, plan: RegistrationPlan, done: Callable[[PlannedAsset], None], tell: _Tell) -> None:
    """Publish what a plan without refused rows says, one after the other; ``done`` hears of each that is published.

    Raises:
        UsageError: somebody published another content in the meantime.
        Exception: of the Azure SDK. What was published until then stays.
    """
    for row in plan.with_action("publish"):
        call_with_retry(lambda asset=row.asset: _send(client, plan.place, asset), tell)  # type: ignore[misc]
        done(row)


def _row(client: Any, place: AssetPlace, asset: LibraryAsset) -> PlannedAsset:
    body = published_body(client, asset)
    if body is None:
        return PlannedAsset(asset, "publish")
    differs = asset_difference(client, asset, place, body)
    return PlannedAsset(asset, "refused", differs) if differs else PlannedAsset(asset, "unchanged")


def _send(client: Any, place: AssetPlace, asset: LibraryAsset) -> None:
    from azure.core.exceptions import HttpResponseError

    operations = client.environments if asset.kind == "environment" else client.components
    try:
        with _silent(), runs_left_out():
            operations.create_or_update(asset_copy(asset, place))
    except HttpResponseError as error:
        if error.status_code != 409 or not _is_there(client, place, asset):
            raise


def _is_there(client: Any, place: AssetPlace, asset: LibraryAsset) -> bool:
    """Whether a conflict is none: somebody has published the same since the plan was made; raises if it is not."""
    row = _row(client, place, asset)
    require_unchanged(RegistrationPlan(place, (row,)))
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
