"""What would be sent for every asset, recorded under ``recorded/``, so that a change shows in review.

``python -m tests.azure.record_bodies`` renews the records. Left out is what changes with every edit elsewhere: the
library's version, our marks, the hash that the SDK makes of the rest, and where the checkout lies.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from allranks import library
from allranks.azure.client import AssetPlace
from allranks.azure.library_asset import LibraryAsset
from allranks.azure.register_assets import find_assets
from allranks.azure.register_copies import asset_body

FOLDER = Path(__file__).parent / "recorded"
COMMAND = "python -m tests.azure.record_bodies"
PLACE = AssetPlace("registry", "the-registry")


def text_of(asset: LibraryAsset) -> str:
    """The record of an asset."""
    body = asset_body(asset, PLACE)
    properties = body["properties"]
    for holder in (properties, properties.get("componentSpec", {})):
        holder["properties"] = _unmarked(holder.get("properties", {}))
    text = json.dumps(body, indent=1, ensure_ascii=False) + "\n"
    text = text.replace(f'"{library.root()}/', '"')  # the checkout's place
    for before in ('"version": "', "/versions/"):
        text = text.replace(f"{before}{asset.version}", f"{before}VERSION")
    return text


def file_of(asset: LibraryAsset) -> Path:
    """Where the record of an asset lies."""
    return FOLDER / f"{asset.name}.json"


def _unmarked(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in properties.items()
        if not key.startswith("allranks_") and key != "client_component_hash"
    }


def main() -> None:
    """Write the records of all assets, and remove those of assets that are no more."""
    texts = {file_of(asset): text_of(asset) for asset in find_assets()}
    FOLDER.mkdir(exist_ok=True)
    for path in set(FOLDER.glob("*.json")) - texts.keys():
        path.unlink()
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(texts)} records in {FOLDER}")


if __name__ == "__main__":
    main()
