"""All that the stand-in remembers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
RESOURCE_GROUP = "research"
WORKSPACE = "lab"
REGISTRY = "shared"
TENANT = "00000000-0000-0000-0000-0000000000aa"
PROVIDER = "/providers/Microsoft.MachineLearningServices"
GROUP_ID = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}"
WORKSPACE_ID = f"{GROUP_ID}{PROVIDER}/workspaces/{WORKSPACE}"
REGISTRY_ID = f"{GROUP_ID}{PROVIDER}/registries/{REGISTRY}"

Versions = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Blob:
    """A file in the storage account."""

    content: bytes = b""
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Store:
    """The assets of a workspace or of a registry: kind to name to version to the document."""

    id: str
    assets: dict[str, dict[str, Versions]] = field(default_factory=dict)

    def versions(self, kind: str, name: str) -> Versions:
        return self.assets.setdefault(kind, {}).setdefault(name, {})

    def find(self, kind: str, name: str, version: str) -> dict[str, Any] | None:
        return self.assets.get(kind, {}).get(name, {}).get(version)


@dataclass(slots=True)
class State:
    """Everything; ``base`` is the server's own address, without a slash at its end."""

    base: str = ""
    workspace: Store = field(default_factory=lambda: Store(WORKSPACE_ID))
    registry: Store = field(default_factory=lambda: Store(REGISTRY_ID))
    computes: dict[str, dict[str, Any]] = field(default_factory=dict)
    blobs: dict[str, Blob] = field(default_factory=dict)
    jobs: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)
    script: dict[str, Any] = field(default_factory=dict)
    faults: list[Any] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    lock: Any = field(default_factory=RLock)

    def remember(self, method: str, path: str, query: dict[str, str], body: bytes, status: int) -> None:
        """Keep what was asked and answered; bodies that are JSON as documents, others by their length."""
        with self.lock:
            self.log.append({"method": method, "path": path, "query": query, "body": _document(body), "status": status})

    def clear(self) -> None:
        """Forget everything but the address. Containers are new, so those that a test holds do not change."""
        empty = State()
        for name in ("workspace", "registry", "computes", "blobs", "jobs", "runs", "script", "faults", "log"):
            setattr(self, name, getattr(empty, name))


def _document(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return len(body)
