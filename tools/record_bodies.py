"""Record what would be sent to Azure ML for every asset, so that a change shows in review.

The records leave out what changes with every edit elsewhere: the version, allranks' own marks, the SDK's hash of the
component, and the path of the checkout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks import library
from allranks.azure.client import AssetPlace
from allranks.azure.library_asset import LibraryAsset
from allranks.azure.register_assets import find_assets
from allranks.azure.register_copies import asset_body

FOLDER = library.root() / "tests" / "azure" / "recorded"
_PLACE = AssetPlace("registry", "the-registry")


def body_records() -> Mapping[Path, str]:
    """Return the record of every asset by its file."""
    return {record_file(asset): body_record(asset) for asset in find_assets()}


def record_file(asset: LibraryAsset) -> Path:
    """Return the file of an asset's record."""
    return FOLDER / f"{asset.name}.json"


def body_record(asset: LibraryAsset) -> str:
    """Return the text of an asset's record."""
    body = asset_body(asset, _PLACE)
    properties = body["properties"]
    for holder in (properties, properties.get("componentSpec", {})):
        holder["properties"] = _unmarked(holder.get("properties", {}))
    text = json.dumps(body, indent=1, ensure_ascii=False) + "\n"
    text = text.replace(f'"{library.root()}/', '"')  # the checkout's place
    for before in ('"version": "', "/versions/"):
        text = text.replace(f"{before}{asset.version}", f"{before}VERSION")
    return text


def _unmarked(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in properties.items()
        if not key.startswith("allranks_") and key != "client_component_hash"
    }
