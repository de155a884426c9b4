"""Components that a pipeline names by an id in Azure: what they take and give, so that the check sees them too."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks import catalogue
from allranks.azure.client import AssetPlace, Workspace, connect_registry, connect_workspace
from allranks.azure.explain import service_errors
from allranks.azure.sdk import entity_document

_ID = re.compile(
    r"azureml:(?://registries/(?P<registry>[^/]+)/components/(?P<path>[^/]+)/(?:versions|labels)/(?P<last>[^/]+)"
    r"|(?P<name>[^:@/]+)(?::(?P<version>[^:@/]+)|@(?P<label>[^:@/]+)))"
)
_KEPT = ("type", "name", "version", "display_name", "description", "inputs", "outputs", "command", "distribution")


class ComponentFinder:
    """Finds components by name or id: the library's own here, all others in Azure, each asked for once.

    Which workspace is meant is found out when it has to be asked.
    """

    def __init__(self, workspace: Callable[[], Workspace]) -> None:
        self._workspace = workspace
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
            file.write_text(json.dumps(self._document(match)), encoding="utf-8")  # JSON is YAML
            self._files[reference] = file
        return self._files[reference]

    def _document(self, match: re.Match[str]) -> dict[str, Any]:
        place = AssetPlace("registry", match["registry"]) if match["registry"] else self._workspace()
        with service_errors(f"looking up the component {match[0]}", place):
            client = connect_workspace(place) if isinstance(place, Workspace) else connect_registry(match["registry"])
            name, version = match["path"] or match["name"], match["last"] or match["version"]
            label = match["label"] or ("latest" if version == "latest" else None)
            found = client.components.get(name, None if label else version, label)
            said = entity_document(found)
        document = {key: said[key] for key in _KEPT if said.get(key) is not None}
        return document | {"environment": f"azureml:{str(said['environment']).removeprefix('azureml:')}"}
