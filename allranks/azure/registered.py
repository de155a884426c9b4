"""Components that a pipeline names by an id in Azure: what they take and give, so that the check sees them too."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from allranks import catalogue
from allranks.azure.client import AssetPlace, Workspace, connect_registry, connect_workspace
from allranks.azure.explain import service_errors
from allranks.azure.sdk import entity_document
from allranks.errors import UsageError
from allranks.local.checkout_assets import COMPONENTS, CheckoutAssets
from allranks.spec.document import read_yaml
from allranks.spec.section import local_path

_ID = re.compile(
    r"azureml:(?://registries/(?P<registry>[^/]+)/components/(?P<path>[^/]+)/(?:versions|labels)/(?P<last>[^/]+)"
    r"|(?P<name>[^:@/]+)(?::(?P<version>[^:@/]+)|@(?P<label>[^:@/]+)))"
)
_KEPT = ("type", "name", "version", "display_name", "description", "inputs", "outputs", "command", "distribution")


class ComponentFinder:
    """Finds components by name or id: the library's own here, all others in Azure, each asked for once.

    Which workspace is meant is found out when it has to be asked. A dry run, which should ask nobody, gives a
    ``checkout``, and takes command components from it where it has them; what is sent is what Azure has.
    """

    def __init__(self, workspace: Callable[[], Workspace], checkout: CheckoutAssets | None = None) -> None:
        self._workspace = workspace
        self._checkout = checkout
        self._files: dict[str, Path] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def find(self, reference: str) -> Path | None:
        """A YAML that says what a component takes and gives; None for what is no id; raises AzureError."""
        own = catalogue.resolve(reference)
        match = _ID.fullmatch(reference)
        if own is not None or match is None:
            return own
        if reference not in self._files:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="allranks-")
            file = Path(self._folder.name) / f"{len(self._files)}.yaml"
            document = self._described(reference) or self._document(match)
            file.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
            self._files[reference] = file
        return self._files[reference]

    def _described(self, reference: str) -> dict[str, Any] | None:
        """What a command component of the checkout says; without its code, which a reference does not send along."""
        if self._checkout is None:
            return None
        try:
            asset = self._checkout.find(reference, (COMPONENTS,))
        except UsageError:
            return None  # it could be two files; Azure knows which
        if asset is None:
            return None
        data, _ = read_yaml(asset.file)
        if data.get("type", "command") != "command":
            del self._checkout.taken[reference]
            return None
        return {key: data[key] for key in _KEPT if data.get(key) is not None} | _environment(data, asset.file.parent)

    def _document(self, match: re.Match[str]) -> dict[str, Any]:
        place = AssetPlace("registry", match["registry"]) if match["registry"] else self._workspace()
        with service_errors(f"looking up the component {match[0]}", place):
            client = connect_workspace(place) if isinstance(place, Workspace) else connect_registry(match["registry"])
            name, version = match["path"] or match["name"], match["last"] or match["version"]
            label = match["label"] or ("latest" if version == "latest" else None)
            found = client.components.get(name, None if label else version, label)
            said = entity_document(found)
        if said.get("type") != "command":
            message = f"{match[0]} is a {said.get('type')} component, and here only command components are looked up."
            raise UsageError(
                message, "Write its YAML in place of the id, or send the job with: az ml job create --file."
            )
        document = {key: said[key] for key in _KEPT if said.get(key) is not None}
        return document | {"environment": f"azureml:{str(said['environment']).removeprefix('azureml:')}"}


def _environment(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A component's environment, so that it can be read from another folder: one in place by its image alone."""
    given = data.get("environment")
    if isinstance(given, dict):
        return {"environment": {"image": given.get("image") or "built"}}
    return {} if given is None else {"environment": _absolute(str(given), folder)}


def _absolute(environment: str, folder: Path) -> str:
    return f"file:{local_path(environment, folder)}" if environment.startswith("file:") else environment
