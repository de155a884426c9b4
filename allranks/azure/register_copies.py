"""The copies that are sent: the SDK's entities with full ids for environments and children, and our marks.

The YAML names its environment as a workspace does (``azureml:allranks-pytorch:0.1.0``). A registry takes only its own
full ids [azure-sdk-for-python #37464], and a child that is not named by the id of a registered component becomes an
anonymous one [#34891].
"""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

import yaml

from allranks import library
from allranks.azure.client import AssetPlace
from allranks.azure.library_asset import PREFIX, LibraryAsset, component_key
from allranks.azure.register_own import ONLY_VERSION
from allranks.azure.sdk import name_component, rest_body
from allranks.spec.section import is_address

MARK_PROPERTY = "allranks_{}"
"""The property of a published asset that holds the mark of one of its parts."""


def asset_copy(asset: LibraryAsset, place: AssetPlace) -> Any:
    """The entity that ``create_or_update`` takes; a new one at each call, for the SDK changes what it sends.

    Returns:
        An Environment, a CommandComponent or a PipelineComponent of azure.ai.ml.
    """
    from azure.ai.ml import load_component, load_environment

    if asset.kind == "environment" and asset.own_version:  # it stands in its component's YAML
        entity = load_environment(StringIO(yaml.safe_dump(dict(asset.document), sort_keys=False)))
    elif asset.kind == "environment":
        entity = load_environment(asset.path)
    elif asset.kind == "component" and not asset.needs:
        entity = load_component(asset.path)
    elif asset.kind == "component":
        name = asset.needs[0][1]
        version = library.VERSION if name.startswith(PREFIX) else ONLY_VERSION
        environment = place.id_of("environments", name, version)
        entity = load_component(asset.path, params_override=[{"environment": environment}])
    else:
        entity = _pipeline_component(asset, place)
    entity.properties.update({MARK_PROPERTY.format(part): mark for part, mark in asset.marks.items()})
    return entity


def asset_body(asset: LibraryAsset, place: AssetPlace) -> dict[str, Any]:
    """The REST body as it would be sent, before the service's ids of uploaded files stand in it."""
    return rest_body(asset_copy(asset, place))


def _child_id(written: str, asset: LibraryAsset, place: AssetPlace) -> str:
    """Of a child's name, with its version where that is not its pipeline's; the id of what is in Azure stays.

    A registry takes its own components alone, so there a name without the registry's address is one of them.
    """
    if is_address(written) and (place.kind == "workspace" or "://" in written or written.count(":") != 2):
        return written
    name, _, version = written.removeprefix("azureml:").partition(":")
    return place.id_of("components", name, version or asset.version)


def _pipeline_component(asset: LibraryAsset, place: AssetPlace) -> Any:
    from azure.ai.ml import load_component

    steps = asset.document["jobs"]
    ids = {name: _child_id(step[component_key(step)], asset, place) for name, step in steps.items()}
    jobs = {name: {**step, component_key(step): ids[name]} for name, step in steps.items()}
    document: Mapping[str, Any] = {**asset.document, "jobs": jobs}
    entity = load_component(StringIO(yaml.safe_dump(document, sort_keys=False)))
    for name, node in entity.jobs.items():
        if node.type == "sweep":
            name_component(node, ids[name])  # azure-ai-ml 1.35 cuts "azureml:" off the id of a trial in a registry
    return entity
