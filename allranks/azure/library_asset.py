"""What is registered, with marks of what is in it: things of the library (``register_assets.py``) or a user's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from allranks import library
from allranks.errors import Problem

AssetKind: TypeAlias = Literal["environment", "component", "pipeline"]
"""In the order in which they are registered; a pipeline becomes a pipeline component."""

PREFIX = "allranks-"
"""What the environments' names begin with in a workspace; a bare ``pytorch`` would meet those of others."""

WORDS = ("display_name", "description", "tags")
INTERFACE = ("inputs", "outputs")
NOT_COMPARED = ("$schema", "name", "version", "code", "additional_includes", "type")


@dataclass(frozen=True, slots=True)
class LibraryAsset:
    """One thing that is registered, under the library's version or a user's own.

    Attributes:
        name: its name in a workspace or registry: ``allranks-pytorch``, ``train_ddp``, ``image_classification``.
        path: the YAML file.
        needs: (kind, name) of what has to be there first.
        marks: part (``code``, ``interface``, ...) to the sha256 of its content; without ids, so that they are the same
            in every workspace and registry, and without anything that the SDK writes, so that its releases do not
            change them.
        document: what the YAML says; for a pipeline the document of the pipeline component.
        own_version: of what is a user's own; the assets of the library all carry the library's.
        dropped: what a pipeline component has not of its pipeline, such as settings (the SDK leaves them out as well).
        raised_by: the option that gives a user's own its version; empty where that stands in its YAML.
    """

    kind: AssetKind
    name: str
    path: Path
    needs: tuple[tuple[AssetKind, str], ...]
    marks: Mapping[str, str]
    document: Mapping[str, Any]
    dropped: tuple[str, ...] = ()
    own_version: str = ""
    raised_by: str = ""

    @property
    def version(self) -> str:
        """Its version: the library's, which all its assets carry, or the user's own."""
        return self.own_version or library.VERSION

    @property
    def family(self) -> str:
        """What the service calls such assets: ``environments``, or ``components`` for pipelines too."""
        return "environments" if self.kind == "environment" else "components"

    @property
    def how_to_raise(self) -> str:
        """Where a user's own has its version."""
        return f"the version of {self.path} with {self.raised_by}" if self.raised_by else f"`version:` in {self.path}"


def component_key(step: Mapping[str, Any]) -> str:
    """Where a step says what it runs: ``trial`` for a sweep."""
    return "trial" if "trial" in step else "component"


def step_problems(step: Mapping[str, Any], where: str, path: Path) -> Iterator[Problem]:
    """What makes sense in one workspace only, or on this machine."""
    compute = str(step.get("compute", "${{"))
    if not compute.startswith("${{") and compute != "serverless":
        message = f"the compute {compute!r} belongs to one workspace, and the component to many."
        yield Problem(message, f"{where}.compute", path, hint="Leave it out, or bind it to an input.")
    for port, value in step.get("inputs", {}).items():
        if isinstance(value, dict) and not str(value.get("path", "${{")).startswith(("${{", "azureml:", "https:")):
            message = f"{value['path']} lies on this machine, and is not sent with a component."
            hint = "Bind it to an input of the pipeline."
            yield Problem(message, f"{where}.inputs.{port}", path, hint=hint)


def only_errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those of the problems that nobody could take."""
    return [problem for problem in problems if problem.severity == "error"]


def mark_of(document: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The mark of a part of a document."""
    return mark_content({key: document.get(key) for key in keys})


def mark_content(content: object) -> str:
    """The sha256 of what can be written as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
