"""Which file of a checkout a reference such as ``azureml:taxi:1`` means: its kind, its version, the nearest of equals.

Azure ML's schemas say what a file is: https://azuremlschemas.azureedge.net/latest/ and, where a file names none, the
keys that only one kind has (https://learn.microsoft.com/azure/machine-learning/reference-yaml-overview).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from allranks.errors import SpecError, UsageError
from allranks.local.checkout import CheckoutFiles, project_root
from allranks.spec.document import read_yaml
from allranks.spec.section import is_address, local_path

COMPONENTS, ENVIRONMENTS, DATA, MODELS = "components", "environments", "data", "models"

_SHORT = re.compile(r"azureml:(?P<name>[^:@/]+)(?::(?P<version>[^:@/]+)|@(?P<label>[^:@/]+))?")
_LONG = re.compile(
    r"azureml:/.*/(?P<kind>components|environments|data|models)/(?P<name>[^/]+)"
    r"/(?:versions/(?P<version>[^/]+)|labels/(?P<label>[^/]+))"
)
_SCHEMA = re.compile(r"(\w+)\.schema\.json$")
_SCHEMAS = {
    "commandComponent": COMPONENTS,
    "pipelineComponent": COMPONENTS,
    "parallelComponent": COMPONENTS,
    "automlComponent": COMPONENTS,
    "environment": ENVIRONMENTS,
    "data": DATA,
    "model": MODELS,
}
_TYPES = {
    **dict.fromkeys(("command", "pipeline", "parallel", "sweep", "automl"), COMPONENTS),
    **dict.fromkeys(("uri_file", "uri_folder", "mltable"), DATA),
    **dict.fromkeys(("custom_model", "mlflow_model", "triton_model"), MODELS),
}
_OF_ENVIRONMENTS = frozenset({"image", "build", "conda_file"})
_NEWEST = ("latest", "default")
"""``default`` is what registries call the version that is taken where none is stated."""


class AssetReference(NamedTuple):
    """What a reference asks for.

    Attributes:
        kind: one of the kinds above; empty where the reference does not say it.
        version: the only one that will do; None for the newest.
    """

    name: str
    kind: str
    version: str | None


class CheckoutAsset(NamedTuple):
    """A YAML file that describes an asset.

    Attributes:
        version: as Azure ML reads it; empty where Azure ML would number it.
        path: that of data or of a model: absolute, or an address in the cloud; empty for other kinds.
    """

    file: Path
    kind: str
    version: str
    path: str = ""

    @property
    def is_in_cloud(self) -> bool:
        """Whether its path is an address, or one that only a job gets."""
        return is_address(self.path) or "${{" in self.path

    @property
    def is_here(self) -> bool:
        """Whether what it describes is on this machine."""
        return not self.path or (not self.is_in_cloud and Path(self.path).exists())

    def serves(self, version: str | None) -> bool:
        """Whether it can be meant by a version, None being the newest; without one of its own it can be any."""
        return version in (None, self.version) or not self.version


def parse_reference(reference: str) -> AssetReference | None:
    """What a reference asks for; None for what is no asset's, and for a label that only a workspace knows."""
    match = _SHORT.fullmatch(reference) or _LONG.fullmatch(reference)
    if match is None or match["label"] not in (None, *_NEWEST):
        return None
    return AssetReference(match["name"], match.groupdict().get("kind", ""), match["version"])


@dataclass(frozen=True, slots=True)
class CheckoutAssets:
    """The assets of the project around a target.

    Attributes:
        folder: the target's, absolute; of files that serve equally the nearest to it is meant.
        taken: each reference that was found, with the file that was taken for it.
    """

    folder: Path
    files: CheckoutFiles
    taken: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def around(cls, folder: Path, read: dict[Path, CheckoutFiles] | None = None) -> CheckoutAssets:
        """Those of the project that the folder belongs to; nothing is looked at yet.

        ``read`` has the files of projects that others have asked for, by their topmost folders, and gets these.
        """
        absolute = Path(os.path.normpath(folder.absolute()))
        files = CheckoutFiles(absolute)
        return cls(absolute, files if read is None else read.setdefault(project_root(absolute), files))

    def find(self, reference: str, kinds: Collection[str]) -> CheckoutAsset | None:
        """The asset that a reference means; None where the checkout has none of these kinds by its name.

        Raises:
            UsageError: two files serve equally.
        """
        wanted = parse_reference(reference)
        serving = [one for one in self._named(wanted, kinds) if wanted and one.serves(wanted.version)]
        if wanted is None or not serving:
            return None
        best = self._best(serving, newest=wanted.version is None)
        if len(best) > 1:
            first, *others = (_shown(one.file) for one in best)
            message = f"{reference!r} is {first} and just as well {' and '.join(others)}: nothing says which is meant."
            raise UsageError(message, _choice(reference, best[0]))
        self.taken[reference] = best[0].file
        return best[0]

    def other_versions(self, reference: str, kinds: Collection[str]) -> UsageError | None:
        """What to tell of a reference that was not found, if the checkout has other versions of what it names."""
        others = self._named(parse_reference(reference), kinds)
        if not others:
            return None
        listed = ", ".join(f"version {one.version} in {_shown(one.file)}" for one in others)
        message = f"cannot run here: {reference!r} is not in this checkout, which has {listed}."
        return UsageError(message, _choice(reference, self._nearest(others)[0]))

    def _named(self, wanted: AssetReference | None, kinds: Collection[str]) -> list[CheckoutAsset]:
        """The assets of that name, and of that kind or these, whatever their versions."""
        if wanted is None or (wanted.kind and wanted.kind not in kinds):
            return []
        kinds = {wanted.kind} if wanted.kind else kinds
        return [one for one in map(read_asset, self.files.named(wanted.name)) if one and one.kind in kinds]

    def lines(self) -> list[str]:
        """What a user should know: one line for each reference that a file stands for."""
        found = [f"{one} is {_shown(file)}, of this checkout." for one, file in sorted(self.taken.items())]
        if found and self.files.is_partial:
            found.append(
                f"this checkout is large: of its YAML files only the nearest {self.files.opened:,} were looked at."
            )
        return found

    def _best(self, serving: list[CheckoutAsset], *, newest: bool) -> list[CheckoutAsset]:
        """The one that is meant, or all that may be."""
        stated = [one for one in serving if one.version]
        if newest and stated:
            highest = max(_version_order(one.version) for one in stated)
            stated = [one for one in stated if _version_order(one.version) == highest]
        unstated = [one for one in serving if not one.version]
        if not stated or not unstated:
            return self._nearest(stated or unstated)
        near, far = self._nearest(stated), self._nearest(unstated)
        # What Azure ML would number may become the newest; and what lies nearer may be meant to be this version.
        is_certain = not newest and self._closeness(near[0]) >= self._closeness(far[0])
        return near if is_certain else [*near, *far]

    def _nearest(self, assets: list[CheckoutAsset]) -> list[CheckoutAsset]:
        closest = max(map(self._closeness, assets))
        return [one for one in assets if self._closeness(one) == closest]

    def _closeness(self, asset: CheckoutAsset) -> int:
        """How far down the target's folder and the file have their path in common."""
        return len(Path(os.path.commonpath((self.folder, asset.file))).parts)


def read_asset(file: Path) -> CheckoutAsset | None:
    """What asset a YAML file describes; None for one that describes something else, or cannot be read."""
    try:
        document, _ = read_yaml(file)
    except SpecError:
        return None
    kind = _kind(document)
    if kind is None:
        return None
    version = document.get("version")
    path = document.get("path") if kind in (DATA, MODELS) else ""
    if not isinstance(path, str) or isinstance(version, (dict, list)):
        return None
    # A version of 1.10 without quotes is 1.1, for Azure ML too.
    return CheckoutAsset(file, kind, "" if version is None else str(version), path and local_path(path, file.parent))


def _kind(document: Mapping[str, Any]) -> str | None:
    """The kind of a document; its schema decides, and jobs, endpoints and deployments have others."""
    if match := _SCHEMA.search(str(document.get("$schema") or "")):
        return _SCHEMAS.get(match[1])
    type_ = document.get("type")
    if isinstance(type_, str) and type_ in _TYPES:
        kind = _TYPES[type_]
        return kind if kind == COMPONENTS or "path" in document else None
    is_environment = type_ is None and not {"command", "jobs", "services"} & document.keys()
    return ENVIRONMENTS if is_environment and _OF_ENVIRONMENTS & document.keys() else None


def _version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Versions in the order in which people count them: by numbers, where they have them.

    Azure ML takes the one that was made last for the latest; files do not say when that was.
    """
    parts = re.findall(r"\d+|[^\d.]+", version)
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def asset_path(asset: CheckoutAsset, reference: str) -> Path:
    """What the asset is on this machine: the path of data or a model, else its YAML.

    Raises:
        UsageError: it lies in the cloud, or is not there.
    """
    if asset.kind not in (DATA, MODELS):
        return asset.file
    if not asset.is_here:
        where = "lies in the cloud" if asset.is_in_cloud else "does not exist"
        message = f"{reference!r} is {_shown(asset.file)}, and its path {asset.path!r} {where}."
        raise UsageError(message, _map_line(reference, "PATH"))
    return Path(asset.path)


def _choice(reference: str, asset: CheckoutAsset) -> str:
    """How the user decides for the first; data is mapped to where it lies, everything else to its YAML."""
    return _map_line(reference, _shown(Path(asset.path or asset.file)) if asset.is_here else "PATH")


def _map_line(reference: str, path: str) -> str:
    return f"Say which: --map {shlex.quote(f'{reference}={path}')}"


def _shown(path: Path) -> str:
    """A path as the user would write it here: from the working folder, where it lies below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
