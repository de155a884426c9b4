"""What is registered already, and whether it is the same as what the library has.

Everything that allranks publishes carries a mark for each of its parts, and marks are compared. What somebody published
otherwise (``az ml component create``) has none; then the bodies are compared, as far as the service gives them back:
the sha256 of a component's code is a property of its code asset, and the hash of an environment's files is part of the
address to which the SDK uploads them in a workspace. A registry keeps no such trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.azure.client import AssetPlace, found_or_none
from allranks.azure.library_asset import LibraryAsset
from allranks.azure.register_copies import MARK_PROPERTY, asset_body
from allranks.azure.sdk import SOURCE_KEY, code_hash, component_body, environment_body, upload_hash

_PART_NAMES = {
    "code": "its code",
    "files": "its files",
    "interface": "its inputs or outputs",
    "command": "its command, environment, distribution or resources",
    "steps": "its steps",
    "definition": "its definition",
    "words": "its display name, description or tags",
}
"""Parts of an asset, as a person is told about them."""

_INTERFACE = ("inputs", "outputs")
_COMMAND = ("command", "environment", "distribution", "resources", "is_deterministic")
_WORDS = ("display_name", "description", "tags")
_ADDED = (SOURCE_KEY, "name")
_DEFINITION = ("image", "condaFile", "osType", "inferenceConfig")
_ID = re.compile(r".*/(?P<name>[^/]+)/(?:versions|labels)/(?P<version>[^/]+)|(?:azureml:)?(?P<short>[\w-]+:[\w.+-]+)")
_UPLOADED = re.compile(r"/LocalUpload/(?P<hash>[0-9a-f]{64})/")


def published_body(client: Any, asset: LibraryAsset) -> dict[str, Any] | None:
    """The body of the version that is registered, or None; raises AzureError if the service does not say."""
    read_body = environment_body if asset.kind == "environment" else component_body
    return found_or_none(lambda: read_body(client, asset.name, asset.version))


def asset_difference(client: Any, asset: LibraryAsset, place: AssetPlace, body: Mapping[str, Any]) -> str:
    """What differs between the library's asset and the published one, in words; empty when they are the same."""
    properties = body["properties"].get("properties") or {}
    marks = {part: properties.get(MARK_PROPERTY.format(part)) for part in asset.marks}
    if None not in marks.values():
        return _changed([part for part, mark in asset.marks.items() if marks[part] != mark])
    ours, theirs = _parts(asset, asset_body(asset, place)), _parts(asset, body)
    parts = [part for part in ours if ours[part] != theirs[part]]
    files = _same_files(client, asset, body)
    if files is None:
        unknown = "its files cannot be compared, for it was published without allranks"
        return "; ".join(filter(None, (_changed(parts), unknown)))
    return _changed(parts if files else [*({"code", "files"} & asset.marks.keys()), *parts])


def _changed(parts: Sequence[str]) -> str:
    *first, last = [_PART_NAMES[part] for part in parts] or [""]
    return f"{', '.join(first)} and {last} changed" if first else f"{last} changed" if last else ""


def _same_files(client: Any, asset: LibraryAsset, body: Mapping[str, Any]) -> bool | None:
    """Whether the uploaded files are ours; None where that cannot be known."""
    if asset.kind == "pipeline" or (asset.kind == "environment" and "build" not in asset.document):
        return True
    if asset.kind == "component":
        there, ours = _code_hash(client, body), asset.marks["code"]
    else:
        folder = asset.path.parent / asset.document["build"]["path"]
        there, ours = _context_hash(body), upload_hash(folder.resolve())
    return None if there is None else there == ours


def _code_hash(client: Any, body: Mapping[str, Any]) -> str | None:
    match = _ID.fullmatch(str(body["properties"]["componentSpec"].get("code")))
    if match is None or match["name"] is None:
        return None
    return code_hash(client, match["name"], match["version"])


def _context_hash(body: Mapping[str, Any]) -> str | None:
    match = _UPLOADED.search(str((body["properties"].get("build") or {}).get("contextUri")))
    return None if match is None else match["hash"]


def _parts(asset: LibraryAsset, body: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a body that can be compared, without what the service adds and rewrites."""
    properties = body["properties"]
    if asset.kind == "environment":
        build = (properties.get("build") or {}).get("dockerfilePath")
        definition = {key: properties.get(key) for key in _DEFINITION} | {"dockerfile": build}
        definition["osType"] = definition["osType"] or "Linux"  # the service's default, which it writes down
        words = {key: properties.get(key) for key in _WORDS}
        return {"definition": _plain(definition), "words": _plain(words)}
    spec = properties["componentSpec"]
    words = {"display_name": spec.get("display_name")} | {key: properties.get(key) for key in ("description", "tags")}
    rest = {"steps": ("jobs",)} if asset.kind == "pipeline" else {"command": _COMMAND}
    sections = {"interface": _INTERFACE, **rest}
    parts = {part: _plain({key: spec.get(key) for key in keys}) for part, keys in sections.items()}
    return parts | {"words": _plain(words)}


def _plain(value: Any) -> Any:
    """A value of a body in one form: nothing that is empty, false or added by the SDK, scalars as ``_scalar`` says."""
    if isinstance(value, Mapping):
        plain = {key: _plain(inner) for key, inner in value.items() if key not in _ADDED or isinstance(inner, Mapping)}
        if isinstance(plain.get("type"), str):
            plain["type"] = plain["type"].lower()  # the service writes String where the SDK wrote string
        return {key: inner for key, inner in plain.items() if inner not in (None, {}, [], "")}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bool):
        return "true" if value else None
    return None if value is None else _scalar(str(value))


def _scalar(text: str) -> str:
    """Numbers without a needless ``.0``, ids as NAME:VERSION, white space collapsed."""
    match = _ID.fullmatch(text)
    if match is not None and text.startswith(("azureml:", "/")):
        return match["short"] or f"{match['name']}:{match['version']}"
    try:
        return f"{float(text):.12g}"
    except ValueError:
        return " ".join(text.split())
