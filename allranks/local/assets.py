"""What lives in the cloud and has a stand-in here: mapped, registered by an earlier run, or described in the checkout.

A reference is looked up in ``--map``, then in ``allranks-map.yaml`` beside the pipeline, then (data only) among the
assets that earlier runs registered below the runs folder, then in the YAML files of the project around the target.
Nothing is ever downloaded.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from allranks import catalogue
from allranks.errors import UsageError
from allranks.local.checkout_assets import COMPONENTS, DATA, ENVIRONMENTS, MODELS, CheckoutAssets, asset_path
from allranks.local.file_locks import held_lock
from allranks.local.folders import RunsHome, child, write_json_file
from allranks.local.record_shapes import read_json_file

MAP_FILE = "allranks-map.yaml"
ASSET_NAME_RULE = "letters, digits, '_', '-' and '.' are"

_VERSIONED = re.compile(r"azureml:(?P<name>[^:@/]+)(?::(?P<version>[^:@/]+)|@(?P<label>[^:@/]+))?")


def is_asset_name(name: str) -> bool:
    """Whether an output can be registered under this name."""
    return re.fullmatch(r"[\w.-]+", name) is not None and not name.startswith(".")


def mapping_hint(reference: str) -> str:
    """Say how the user names what stands for a reference, ready to be copied into a shell."""
    option = shlex.quote(f"{reference}=PATH")
    return f"Say what stands for it here: --map {option}, or a line REFERENCE: PATH in {MAP_FILE} beside the pipeline."


@dataclass(frozen=True, slots=True)
class CloudStandIns:
    """Where references to the cloud lead on this machine.

    Attributes:
        mapped: reference, with or without a version, or the beginning of an address, to a path.
        home: holds what earlier runs registered; None to leave these out.
        checkout: the files of the project around the target; None to leave these out.
    """

    mapped: Mapping[str, Path] = field(default_factory=dict)
    home: RunsHome | None = None
    checkout: CheckoutAssets | None = None

    def find(self, reference: str) -> Path | None:
        """The path that stands for data, a model or an address in the cloud; None when there is none.

        Raises:
            UsageError: it could be two things, or the checkout has it in another version or describes it as elsewhere.
        """
        found = self._mapped(reference)
        if found is None and (match := _VERSIONED.fullmatch(reference)):
            found = self._registered(match["name"], match["version"])
        return found or self._in_checkout(reference, (DATA, MODELS))

    def find_component(self, reference: str) -> Path | None:
        """The YAML of a component or pipeline, the library's own first; None when there is none.

        Raises:
            UsageError: it could be two things.
        """
        own = catalogue.resolve(reference) or self._mapped(reference)
        return own or self._in_checkout(reference, (COMPONENTS,))

    def find_environment(self, reference: str) -> Path | None:
        """The YAML of an environment that is not the library's; None when there is none.

        Raises:
            UsageError: it could be two things.
        """
        return self._mapped(reference) or self._in_checkout(reference, (ENVIRONMENTS,))

    @property
    def taken(self) -> dict[str, str]:
        """The references that files of the checkout stand for, with the paths of these."""
        return {} if self.checkout is None else {one: str(file) for one, file in sorted(self.checkout.taken.items())}

    @property
    def taken_lines(self) -> list[str]:
        """The same for people: a line for each."""
        return [] if self.checkout is None else self.checkout.lines()

    def _mapped(self, reference: str) -> Path | None:
        match = _VERSIONED.fullmatch(reference)
        if match is None:
            return self._by_beginning(reference)
        return self.mapped.get(reference) or self.mapped.get(f"azureml:{match['name']}")

    def _in_checkout(self, reference: str, kinds: Collection[str]) -> Path | None:
        if self.checkout is None:
            return None
        asset = self.checkout.find(reference, kinds)
        if asset is None:
            other = self.checkout.other_versions(reference, kinds) if ENVIRONMENTS not in kinds else None
            if other is not None:  # a step whose environment is not known runs all the same
                raise other
            return None
        return self._by_beginning(asset.path) or asset_path(asset, reference)

    def _by_beginning(self, address: str) -> Path | None:
        """A mapped folder of a datastore or web address serves everything below it."""
        fitting = [key for key in self.mapped if address == key or address.startswith(key.rstrip("/") + "/")]
        if not fitting:
            return None
        longest = max(fitting, key=len)
        rest = address[len(longest.rstrip("/")) :].lstrip("/")
        if ".." in Path(rest).parts:
            raise UsageError(f"{address!r} leads out of the mapped folder {longest!r}.")
        return self.mapped[longest] / rest if rest else self.mapped[longest]

    def _registered(self, name: str, version: str | None) -> Path | None:
        versions = {} if self.home is None else _versions(self.home, name)
        # The latest is the one that was registered last, and not by its time: a clock may be set back.
        entry = versions.get(version or next(reversed(versions), ""))
        path = Path(str(entry["path"])) if entry and self.home else None
        inside = self.home.path.resolve() if self.home else Path()  # where outputs lie; another path is not believed
        return path if path is not None and path.exists() and path.resolve().is_relative_to(inside) else None


def read_mapping(options: Iterable[str], folder: Path) -> dict[str, Path]:
    """The user's mapping: ``REFERENCE=PATH`` options over the file beside the pipeline.

    Paths in options start from the working folder, those in the file from the folder of the pipeline.

    Raises:
        UsageError: an option or the file is malformed, or a path does not exist.
    """
    mapping = _read_file(folder / MAP_FILE)
    for option in options:
        reference, separator, text = option.partition("=")
        if not separator or not reference or not text:
            raise UsageError(
                f"--map {option!r} is not REFERENCE=PATH.", "For example: --map azureml:mnist=./data/mnist."
            )
        mapping[reference] = Path(text).expanduser().absolute()
    for reference, path in mapping.items():
        if not path.exists():
            raise UsageError(f"{reference} is mapped to {str(path)!r}, which does not exist.")
    return mapping


def _read_file(file: Path) -> dict[str, Path]:
    if not file.is_file():
        return {}
    try:
        document = yaml.safe_load(file.read_text()) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        raise UsageError(
            f"{file} has to be a mapping of references to paths.", "For example: azureml:mnist: ./data/mnist"
        )
    return {str(reference): (file.parent / Path(path).expanduser()).absolute() for reference, path in document.items()}


def register_asset(home: RunsHome, name: str, version: str | None, path: Path, kind: str | None) -> str:
    """Keep an output under a name, so that later runs can use ``azureml:NAME:VERSION``; return the version.

    Without a version the next whole number is taken, as Azure ML does; an output that has one keeps it.
    """
    file = _file(home, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with held_lock(file.parent / ".lock"):  # other engines read what there is before they write
        versions = _versions(home, name)
        for known, entry in versions.items():
            if entry["path"] == str(path) and version in (None, known):
                return known
        numbers = [int(text) for text in versions if text.isdigit()]
        chosen = version or str(max(numbers, default=0) + 1)
        versions.pop(chosen, None)  # the last one is the latest
        versions[chosen] = {"path": str(path), "type": kind, "registered": time.time()}
        write_json_file(file, {"name": name, "versions": versions})
    return chosen


def assets_below(home: RunsHome, folder: Path) -> list[str]:
    """The assets, as ``azureml:NAME:VERSION``, that lie in a folder, such as that of a run."""
    inside = folder.absolute()
    return [
        f"azureml:{file.stem}:{version}"
        for file in sorted(child(home.path, "assets").glob("*.json"))
        for version, entry in _versions(home, file.stem).items()
        if Path(str(entry["path"])).absolute().is_relative_to(inside)
    ]


def _versions(home: RunsHome, name: str) -> dict[str, dict[str, str | float | None]]:
    document = read_json_file(_file(home, name))
    return dict(document["versions"]) if isinstance(document, dict) else {}


def _file(home: RunsHome, name: str) -> Path:
    if not is_asset_name(name):
        raise UsageError(f"{name!r} is no name for an asset: {ASSET_NAME_RULE}.")
    return child(home.path, "assets") / f"{name}.json"
