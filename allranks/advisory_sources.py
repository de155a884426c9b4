"""Who knows the holes of a version: PyPI's JSON API, or a clone of the database that PyPI has them from.

https://docs.pypi.org/api/json/#known-vulnerabilities; https://github.com/pypa/advisory-database, a file in the Open
Source Vulnerability format (https://ossf.github.io/osv-schema/) for each hole, below ``vulns/<package>``.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from allranks.catalogue import load_yaml
from allranks.errors import CannotRunHereError, StorageError, UsageError

PYPI = "https://pypi.org/pypi"
_DATABASE = "https://github.com/pypa/advisory-database"
_SECONDS = 30.0
_MOST_BYTES = 64 * 2**20
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Advisory:
    """One known hole of one locked version.

    Attributes:
        package: name and version, as ``name==version``.
        id: such as ``PYSEC-2024-48``.
        aliases: its other names, such as a CVE's.
        fixed_in: versions without it; empty if there is none yet.
        link: where it is described.
    """

    package: str
    id: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    link: str

    def __str__(self) -> str:
        """As one line: the version, the hole, and what is without it."""
        names = ", ".join((self.id, *self.aliases))
        return f"{self.package}: {names}; fixed in {', '.join(self.fixed_in) or 'no version yet'}; {self.link}"

    @classmethod
    def from_json(cls, package: str, found: Mapping[str, Any]) -> Advisory:
        """Read what PyPI says, or what was kept of it."""
        lists = {name: tuple(map(str, found.get(name) or ())) for name in ("aliases", "fixed_in")}
        return cls(package, str(found["id"]), link=str(found.get("link") or ""), **lists)


@dataclass(frozen=True, slots=True)
class KnownAdvisories:
    """What a source knows of some versions.

    Attributes:
        source: whose word it is, as an address.
        as_of: the day up to which it knows, as ``2026-11-24``.
        versions: the holes of each version that it knows, by ``name==version``.
    """

    source: str
    as_of: str
    versions: Mapping[str, Sequence[Advisory]]


def ask_index(packages: Sequence[str], index: str = PYPI) -> KnownAdvisories:
    """Ask an index with PyPI's JSON API.

    Raises:
        CannotRunHereError: it cannot be reached, or knows none of them.
    """
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)  # as pip would take them
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = dict(zip(packages, pool.map(lambda one: _ask(index, one, context), packages), strict=True))
    known = {package: found for package, found in answers.items() if found is not None}
    if not known:
        message = f"{index} knows none of the {len(packages)} locked versions: it has no JSON API."
        hint = f"Ask where PyPI itself is reached, or clone {_DATABASE}: --advisories-from CLONE."
        raise CannotRunHereError(message, hint)
    return KnownAdvisories(index, datetime.now(UTC).strftime("%Y-%m-%d"), known)


def _ask(index: str, package: str, context: ssl.SSLContext) -> list[Advisory] | None:
    """What the index says of a version; None if it does not know it."""
    address = f"{index}/{package.replace('==', '/')}/json"
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS, context=context) as answer:  # noqa: S310  # https, ours
            document = json.loads(answer.read(_MOST_BYTES))
        found = [one for one in document["vulnerabilities"] if not one.get("withdrawn")]
        return [Advisory.from_json(package, one) for one in found]
    except urllib.error.HTTPError as error:
        if error.code == 404:  # not found
            return None
        raise CannotRunHereError(f"{address} answered {error.code} {error.reason}.", "Try again later.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CannotRunHereError(f"{address} cannot be read: {error}.", "Nothing was written.") from error


def read_database(packages: Sequence[str], folder: Path) -> KnownAdvisories:
    """Read a clone of the Python Packaging Advisory Database; what it says nothing of has no known hole.

    Raises:
        UsageError: the folder is no such clone.
        StorageError: a file in it is damaged.
    """
    if not (folder / "vulns").is_dir():
        raise UsageError(f"{str(folder)!r} has no folder vulns.", f"Clone {_DATABASE}, and name the clone.")
    newest, versions = "", {}
    for package in packages:
        name, _, version = package.partition("==")
        found: list[Advisory] = []
        for path in sorted((folder / "vulns" / name).glob("*.yaml")):
            try:
                document = load_yaml(path.read_text(encoding="utf-8"))
                newest = max(newest, str(document["modified"]))
                found += _holes(package, Version(version), document)
            except (OSError, ValueError, KeyError, TypeError, AttributeError, InvalidVersion) as error:
                message = f"{path} is damaged: {type(error).__name__}: {error}."
                raise StorageError(message, "Bring the clone up to date: git pull") from error
        versions[package] = found
    return KnownAdvisories(_DATABASE, newest[:10], versions)


def _holes(package: str, version: Version, document: Mapping[str, Any]) -> Iterator[Advisory]:
    """The hole that a file describes, if this version of the package has it."""
    name = package.partition("==")[0]
    told = [one for one in document["affected"] if one["package"]["name"].lower().replace("_", "-") == name]
    ranges = [span for one in told for span in one.get("ranges") or () if span["type"] == "ECOSYSTEM"]
    listed = {str(found) for one in told for found in one.get("versions") or ()}
    if document.get("withdrawn") or not (str(version) in listed or any(_is_within(version, one) for one in ranges)):
        return
    fixed = sorted({Version(event["fixed"]) for one in ranges for event in one["events"] if "fixed" in event})
    mended = tuple(str(one) for one in fixed if one > version)
    link = f"https://osv.dev/vulnerability/{document['id']}"
    yield Advisory(package, str(document["id"]), tuple(map(str, document.get("aliases") or ())), mended, link)


def _is_within(version: Version, span: Mapping[str, Any]) -> bool:
    """Whether a range's events leave the version with the hole: it came in before, and did not go meanwhile."""
    events = [(Version(text), kind) for event in span["events"] for kind, text in event.items()]
    has_hole = False
    for at, kind in sorted(events):
        if kind == "introduced" and at <= version:
            has_hole = True
        elif (kind == "fixed" and at <= version) or (kind == "last_affected" and at < version):
            has_hole = False
    return has_hole
